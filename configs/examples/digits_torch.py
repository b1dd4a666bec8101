"""Trains a small convolutional network on scikit-learn's handwritten digits, on as many ranks as hvdrun starts.

    hvdrun -np 2 python digits_torch.py

The global batch is the same for any number of ranks: each rank takes its part of it, so that the losses do not depend
on how many there are.
"""

import argparse
import hashlib
import json

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import horovod.torch as hvd

TRAINING_IMAGES = 1440  # of 1797; the rest tests


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.fc = torch.nn.Linear(32 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


def load(seed):
    """Images 1×8×8 in 0…1 and labels, shuffled alike on every rank, as (training, test)."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images, labels = images[order], labels[order]
    return (
        (images[:TRAINING_IMAGES], labels[:TRAINING_IMAGES]),
        (images[TRAINING_IMAGES:], labels[TRAINING_IMAGES:]),
    )


def my_part(batch):
    """This rank's contiguous part of a global batch."""
    part = len(batch) // hvd.size()
    return batch[hvd.rank() * part : (hvd.rank() + 1) * part]


def test_accuracy(model, images, labels):
    """Each rank tests every size-th image; the counts are added."""
    with torch.no_grad():
        mine = slice(hvd.rank(), None, hvd.size())
        correct = (model(images[mine]).argmax(1) == labels[mine]).sum()
    return hvd.allreduce(correct, op=hvd.Sum, name="correct").item() / len(labels)


def check_equal_parameters(model, epoch):
    """Fails unless the parameters are the same on all ranks, to the bit."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    mine = torch.tensor([list(digest.digest())], dtype=torch.uint8)
    for rank, theirs in enumerate(hvd.allgather(mine, name="digest")):
        assert torch.equal(theirs, mine[0]), f"epoch {epoch}: rank {rank} has other parameters than rank {hvd.rank()}"
    if hvd.rank() == 0:
        print(f"epoch {epoch}: parameters {digest.hexdigest()} on all ranks")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=96, help="images per step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="after each epoch, compare the ranks' parameters")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: each rank takes the GPU of its number")
    parser.add_argument("--losses", metavar="FILE", help="write the loss of each step there, as JSON")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(args.seed)
    if args.batch_size % hvd.size() != 0:
        raise SystemExit(f"--batch-size {args.batch_size} cannot be divided among {hvd.size()} ranks")
    if args.device == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    (images, labels), (test_images, test_labels) = [
        (images.to(args.device), labels.to(args.device)) for images, labels in load(args.seed)
    ]

    model = Net().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    losses = []
    for epoch in range(1, args.epochs + 1):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(args.seed + epoch))
        step_losses = []
        for batch in order.split(args.batch_size):
            if len(batch) < args.batch_size:
                break
            mine = my_part(batch)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(images[mine]), labels[mine])
            loss.backward()
            optimizer.step()
            step_losses.append(hvd.allreduce(loss.detach(), name="loss").item())
        losses += step_losses
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {sum(step_losses) / len(step_losses):.4f}", flush=True)
        if args.check:
            check_equal_parameters(model, epoch)

    accuracy = test_accuracy(model, test_images, test_labels)
    if hvd.rank() == 0:
        print(f"test accuracy {accuracy:.4f}")
        if args.losses:
            with open(args.losses, "w") as file:
                json.dump(losses, file)


if __name__ == "__main__":
    main()
