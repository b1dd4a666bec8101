"""Trains a PyTorch model on a Spark DataFrame with horovod.spark.torch.TorchEstimator, and tests it on another one.

    python estimator_torch.py --master 'local[2]'

It is Azure Synapse's notebook for the Horovod estimator with a store on this machine in place of Azure's, and scikit-learn's
digits, made as large as MNIST's, in place of a download.
"""

import argparse
import sys
import tempfile

import numpy as np
import pyspark.sql.types as T
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from sklearn.datasets import load_digits

import horovod.spark.torch as hvd
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--master", default="local[2]", help="of Spark")
parser.add_argument("--num-proc", type=int, default=2, help="processes, at most as many as Spark has slots")
parser.add_argument("--batch-size", type=int, default=32, help="of each process")
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--lr", type=float, default=0.005, help="for one process")
parser.add_argument("--store", help="a folder, or a URL such as abfs://..., that driver and executors share")
options = parser.parse_args()

spark = SparkSession.builder.master(options.master).config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
store = Store.create(options.store or tempfile.mkdtemp(prefix="estimator-"), save_runs=True)

# Images of 28 x 28, as rows of 784 whole numbers from 0 to 255.
digits = load_digits()
images = np.pad(np.kron(digits.images, np.ones((3, 3))), ((0, 0), (2, 2), (2, 2))) * 255 / 16
rows = [(image.ravel().astype(int).tolist(), int(label)) for image, label in zip(images, digits.target)]
df = spark.createDataFrame(rows, ["features", "label"])
train_df, test_df = df.repartition(options.num_proc).randomSplit([0.9, 0.1], seed=1)


class Net(nn.Module):
    """A model without anything of Horovod."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = x.float() / 255
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, 320)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, training=self.training)
        return F.log_softmax(self.fc2(x), 1)


torch.manual_seed(1)
model = Net()
# The notebook multiplies the rate by the number of processes, and the estimator does that once more.
optimizer = optim.SGD(model.parameters(), lr=options.lr * options.num_proc, momentum=0.9)
loss = nn.NLLLoss()

backend = SparkBackend(
    num_proc=options.num_proc, stdout=sys.stdout, stderr=sys.stderr, prefix_output_with_timestamp=True
)
torch_estimator = hvd.TorchEstimator(
    backend=backend,
    store=store,
    partitions_per_process=1,
    model=model,
    optimizer=optimizer,
    loss=lambda input, target: loss(input, target.long()),
    input_shapes=[[-1, 1, 28, 28]],
    feature_cols=["features"],
    label_cols=["label"],
    batch_size=options.batch_size,
    epochs=options.epochs,
    validation=0.1,
    random_seed=1,
    verbose=2,
)
torch_model = torch_estimator.fit(train_df).setOutputCols(["label_prob"])

pred_df = torch_model.transform(test_df)
argmax = udf(lambda v: float(np.argmax(v)), returnType=T.DoubleType())
pred_df = pred_df.withColumn("label_pred", argmax(pred_df.label_prob))
evaluator = MulticlassClassificationEvaluator(predictionCol="label_pred", labelCol="label", metricName="accuracy")
print("Test accuracy:", evaluator.evaluate(pred_df))
spark.stop()
