"""What gradients of a small PyTorch network give away about the people who trained it."""

import numpy as np
import torch

import veilmap as vm

SIZE = 300.0  # metres
PEOPLE = 40


class Scaled(torch.nn.Module):
    """From metres to −1 … 1: part of the network, as everybody has it."""

    def forward(self, xy: torch.Tensor) -> torch.Tensor:
        """Positions, (J, 2)."""
        return 2 * xy / SIZE - 1


def readings(
    scene: vm.Scene, people: int, each: int, seed: int, stays: float = 0.8
) -> dict[int, vm.Records]:
    """What people read of one base station: mostly at one place, sometimes on errands."""
    spots = scene.measure(users=people, links_per_user=each, places_per_user=each, seed=seed)
    rng, made = np.random.default_rng(seed), {}
    for user in spots.users.tolist():
        places = spots.of_user(user).user_xyz.copy()
        at_home = np.flatnonzero(rng.random(each) < stays)
        if each > 1:
            steps = rng.normal(0, 5, (len(at_home), 2))
            places[at_home, :2] = np.clip(places[0, :2] + steps, 0, SIZE)
        gain = scene.gain(places, scene.base_stations[0]) + rng.normal(0, 3, each)
        made[user] = vm.Records(places[:, :2], (gain + 90) / 10)
    return made


def trained(people: dict[int, vm.Records], steps: int = 400) -> torch.nn.Sequential:
    """A network from (x, y) to RSRP, fitted to other people's readings."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        Scaled(), torch.nn.Linear(2, 48), torch.nn.Tanh(), torch.nn.Linear(48, 48),
        torch.nn.Tanh(), torch.nn.Linear(48, 1),
    )  # fmt: skip
    xy = torch.tensor(np.vstack([own.xy for own in people.values()]), dtype=torch.float32)
    wanted = torch.tensor(np.concatenate([own.target for own in people.values()])).float()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(network(xy)[:, 0], wanted).backward()
        optimizer.step()
    return network


def main() -> None:
    """Two audits: one reading each, then thirty each with batches that mislead."""
    torch.set_num_threads(1)
    scene = vm.Scene.synthetic(seed=0)
    network = vm.gradient_models.TorchModel(trained(readings(scene, 500, 1, seed=1)))
    area = (0, 0, SIZE, SIZE)

    people = readings(scene, PEOPLE, 1, seed=2)
    clip = 1.0
    audit = vm.audit_gradients(
        network, people, area=area,
        sees=[
            vm.Uploads(),
            vm.Uploads(vm.NoNoise(clip=clip)),
            vm.Uploads(vm.UniformNoise(clip=clip, noise_budget=1)),
            vm.Uploads(vm.UniformNoise(clip=clip, noise_budget=10)),
            vm.Sums(10),
            vm.Sums(mechanism=vm.AggregateGaussian(epsilon=2, delta=1e-5, clip=clip)),
        ],
    )  # fmt: skip
    ratio = audit[0].score("first layer").median.value
    print(f"One reading each: the ratio of the first layer is {ratio:.3f} m off (median).", audit,
          sep="\n\n", end="\n\n")  # fmt: skip

    batches = vm.audit_gradients(
        network, readings(scene, 20, 30, seed=3), area=area,
        sees=[
            vm.Uploads(),
            vm.Uploads(batch=vm.batches.DiverseBatch(radius=20)),
            vm.Uploads(batch=vm.batches.FarthestBatch(radius=20)),
        ],
    )  # fmt: skip
    print("Thirty readings each, four in five of them around one place:", batches, sep="\n\n")


if __name__ == "__main__":
    main()
