"""Shopping: a generated catalogue, WebShop's interface and reward, and WebShop's own data."""

from zoo.agents.envs.shop.catalogue import Catalogue as Catalogue
from zoo.agents.envs.shop.catalogue import Product as Product
from zoo.agents.envs.shop.catalogue import generated_catalogue as generated_catalogue
from zoo.agents.envs.shop.catalogue import read_webshop as read_webshop
from zoo.agents.envs.shop.catalogue import shop_tasks as shop_tasks
from zoo.agents.envs.shop.env import ShopEnv as ShopEnv
from zoo.agents.envs.shop.env import WebShopEnv as WebShopEnv
from zoo.agents.envs.shop.env import purchase_reward as purchase_reward
from zoo.agents.envs.shop.env import shop_expert_action as shop_expert_action
