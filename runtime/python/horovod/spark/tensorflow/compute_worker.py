"""The workers of a tf.data service, as a Spark job; `spark-submit` runs this file with a name for the file that it writes:

    worker=$(python -c "import horovod.spark.tensorflow.compute_worker as worker; print(worker.__file__)")
    spark-submit --master "local[4]" "$worker" config.json

Each Spark core has a worker. The training job reads config.json (horovod.tensorflow.data), and ends the workers by
`config.compute_client().shutdown()`.
"""

import sys

from pyspark.sql import SparkSession

from horovod.spark import run
from horovod.tensorflow.data.compute_service import compute_worker_fn
from horovod.tensorflow.data.compute_worker import command_line, compute_service


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Runs the workers until they are shut down; this process has the ComputeService, and writes the file."""
    spark = SparkSession.builder.getOrCreate()
    try:
        size = spark.sparkContext.defaultParallelism
        with compute_service(dispatchers, size, dispatcher_side, configfile, timeout) as config:
            run(compute_worker_fn, args=(config, timeout), num_proc=size, stdout=sys.stdout, stderr=sys.stderr)
    finally:
        spark.stop()


if __name__ == "__main__":
    options = command_line("The workers of a tf.data service, one for each core that Spark has.")
    main(options.dispatchers, options.dispatcher_side, options.configfile, options.timeout)
