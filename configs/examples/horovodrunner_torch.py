"""The way of a notebook with HorovodRunner, with PyTorch: one process first, then a Spark job of two.

    spark-submit --master 'local[2]' horovodrunner_torch.py
    python horovodrunner_torch.py --master 'local[2]'

It learns scikit-learn's handwritten digits, in place of data that would have to be downloaded.
"""

import argparse
import os
import pathlib
import tempfile

from sparkdl import HorovodRunner


def train(folder, epochs, learning_rate):
    """Runs on each rank. What it needs it imports itself, as a function that is sent to other machines must."""
    import pathlib

    import torch
    import torch.nn.functional as F
    from sklearn.datasets import load_digits

    import horovod.torch as hvd
    from sparkdl.horovod import log_to_driver

    hvd.init()
    torch.manual_seed(hvd.rank())
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    data = torch.utils.data.TensorDataset(images, labels)
    sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank(), seed=1)
    batches = torch.utils.data.DataLoader(data, batch_size=96 // hvd.size(), sampler=sampler)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch, wanted in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), wanted)
            loss.backward()
            optimizer.step()
        mean = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            log_to_driver(f"epoch {epoch}: loss {mean:.4f}")
            torch.save(model.state_dict(), pathlib.Path(folder) / f"{hvd.size()}-ranks.pt")
    correct = (model(images).argmax(1) == labels).float().mean().item()
    return hvd.size(), correct


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", help="Spark's; default: as spark-submit says")
    parser.add_argument("--folder", help="for checkpoints and the timeline, which all machines must see")
    parser.add_argument("--epochs", type=int, default=6)
    given = parser.parse_args()
    folder = pathlib.Path(given.folder or tempfile.mkdtemp(prefix="horovodrunner-"))

    size, correct = HorovodRunner(np=-1).run(train, folder=str(folder), epochs=given.epochs, learning_rate=0.1)
    print(f"local mode: {size} process, {100 * correct:.1f} % are right", flush=True)

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    spark = (builder.master(given.master) if given.master else builder).getOrCreate()
    os.environ["HOROVOD_TIMELINE"] = str(folder / "timeline.json")
    runner = HorovodRunner(np=2, driver_log_verbosity="all")
    size, correct = runner.run(train, folder=str(folder), epochs=given.epochs, learning_rate=0.1)
    print(f"distributed mode: {size} processes, {100 * correct:.1f} % are right", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
