"""The tf.data service beside a job: batches are made by worker processes, and training ranks fetch them.

    # a job of its own:  hvdrun -np 4 python -m horovod.tensorflow.data.compute_worker config.json
    config = TfDataServiceConfig.read("config.json", wait_for_file_creation=True)
    dataset = dataset.batch(128).send_to_data_service(config, hvd.rank(), hvd.size())
"""

from horovod.tensorflow.data.compute_service import (
    TfDataServiceConfig,
    compute_worker_fn,
    send_to_data_service,
    tf_data_service,
)

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]
