"""Trains a small transformer to continue text, on as many ranks as hvdrun starts. The text is made here: sums such as
"17+25=42;", which the model learns to write.

    hvdrun -np 2 python transformer_torch.py

Shows gradient accumulation (--accumulate), gradients in groups, which travel together when a whole layer's are there, and
bfloat16 on the way between ranks (--compress).
"""

import argparse
import random

import torch
import torch.nn.functional as F

import horovod.torch as hvd

SYMBOLS = "0123456789+=;"


def make_text(count, seed):
    """Sums one after the other, as numbers of symbols."""
    numbers = random.Random(seed)
    pairs = [(numbers.randrange(50), numbers.randrange(50)) for _ in range(count)]
    text = "".join(f"{a}+{b}={a + b};" for a, b in pairs)
    return torch.tensor([SYMBOLS.index(symbol) for symbol in text])


class Model(torch.nn.Module):
    mask: torch.Tensor

    def __init__(self, width=64, layers=2, length=32):
        super().__init__()
        self.symbols = torch.nn.Embedding(len(SYMBOLS), width)
        self.places = torch.nn.Embedding(length, width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = torch.nn.Linear(width, len(SYMBOLS))
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x):
        length = x.shape[1]
        hidden = self.symbols(x) + self.places(torch.arange(length))
        return self.out(self.layers(hidden, mask=self.mask[:length, :length], is_causal=True))


def batch(text, size, length, generator):
    """`size` pieces of the text, and what follows each symbol of them."""
    begins = torch.randint(len(text) - length - 1, (size,), generator=generator).tolist()
    pieces = torch.stack([text[begin : begin + length + 1] for begin in begins])
    return pieces[:, :-1], pieces[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32, help="pieces of text per step and rank")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="backward passes per step")
    parser.add_argument("--compress", action="store_true", help="gradients travel as bfloat16")
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    text = make_text(20_000, seed=7)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        backward_passes_per_step=args.accumulate,
        compression=hvd.Compression.bf16 if args.compress else hvd.Compression.none,
        groups=[list(layer.parameters()) for layer in model.layers.layers],
    )
    generator = torch.Generator().manual_seed(hvd.rank())  # each rank reads elsewhere
    first = last = None
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        for _ in range(args.accumulate):
            x, y = batch(text, args.batch_size, 32, generator)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / args.accumulate
            loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
        if step == 1 or step % 50 == 0 or step == args.steps:
            last = hvd.allreduce(loss.detach() * args.accumulate, name="loss").item()
            first = first or last
            if hvd.rank() == 0:
                print(f"step {step}: loss {last:.4f}", flush=True)
    if hvd.rank() == 0:
        print(f"loss went from {first:.4f} to {last:.4f}")


if __name__ == "__main__":
    main()
