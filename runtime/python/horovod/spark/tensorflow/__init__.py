"""TensorFlow on Spark: the workers of a tf.data service as a Spark job (compute_worker.py)."""
