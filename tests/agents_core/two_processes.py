"""Loss, gradient, baselines and history of one batch, by one process or by two: saves them.

python -m tests.agents_core.two_processes RANK WORLD STORE OUT
"""

import sys

import torch
import torch.distributed as dist

from tests.agents_core.test_rollout import make_policy
from zoo.agents.losses import aggregate, clipped_surrogate, kl_k3, skill_sums
from zoo.agents.policy import pad_rows
from zoo.distributed import sum_over_ranks
from zoo.scpo import SkillHistory, estimate_baselines


def share(values, rank, world):
    """Unequal shares: the first process has one more prompt in eight."""
    cut = 0 if world == 1 else 5
    return values[cut:] if rank == 1 or world == 1 else values[:cut]


def main(rank, world, store, out):
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    policy = make_policy()
    torch.manual_seed(1)
    prompts, length = 8, torch.randint(2, 9, (16,)).tolist()
    rows = [torch.randint(5, 20, (n + 2,)).tolist() for n in length]
    rewards = torch.rand(prompts, 2).round()
    skills = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])  # skill 2 is on the second process alone
    lo = [-torch.rand(n + 2) for n in length]

    mine = share(list(range(prompts)), rank, world)
    own = [2 * i + j for i in mine for j in (0, 1)]
    history = SkillHistory(3)
    for _ in range(12):
        baseline = estimate_baselines(
            rewards[mine], skills[mine], n_skills=3, prior=history.prior(), reduce=sum_over_ranks
        )
        history.update(skill_sums(rewards[mine], skills[mine], 3, reduce=sum_over_ranks))
    advantage = (rewards[mine] - baseline).flatten()
    ids, mask = pad_rows([rows[i] for i in own], policy.pad_id, policy.device)
    actions = mask.bool()
    actions[:, :2] = False
    old = torch.zeros(ids.shape)
    for r, i in enumerate(own):
        old[r, : len(lo[i])] = lo[i]
    losses = {}
    for how in ("token", "sequence"):
        policy.zero_grad()
        now = policy.token_logprobs(ids, mask, actions).values
        loss = clipped_surrogate(now, old, advantage, actions, how=how).loss
        loss = loss + 0.1 * aggregate(kl_k3(now, old), actions, how)
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in policy.parameters()])
        losses[how] = sum_over_ranks(loss) / world
        losses[f"{how}_gradient"] = sum_over_ranks(gradient) / world
    losses["history"] = torch.stack([history.total, history.weight, history.noise])
    losses["correlation"] = history.correlation()
    gathered = [None] * world
    if world > 1:
        dist.all_gather_object(gathered, baseline)
    else:
        gathered = [baseline]
    losses["baseline"] = torch.cat(gathered)
    torch.save(losses, f"{out}.{rank}")
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
