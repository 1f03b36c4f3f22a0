from .build import build_optimizers as build_optimizers
from .delta import DeltaAdamW as DeltaAdamW
from .delta import DeltaSGD as DeltaSGD
from .flops import DeltaFlops as DeltaFlops
from .flops import delta_flops as delta_flops
from .keys import attach_delta_keys as attach_delta_keys
from .schedule import WarmupCosineLR as WarmupCosineLR
