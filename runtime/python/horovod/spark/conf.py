"""Settings of Spark, for programs that say by Horovod's names what Spark does with a task that has failed.

Each is a pair for SparkConf.setAll(). Elastic jobs need none of them: horovod.spark.run_elastic asks Spark for new tasks itself.
Spark leaves out executors and nodes only where that is enabled, and its names for it are those since Spark 3.1.
"""

SPARK_CONF_MAX_INT = "2147483647"
SPARK_CONF_MAX_INT_MINUS_ONE = "2147483646"

_PREFIX = "spark.excludeOnFailure"

# How often Spark repeats a task.
SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = ("spark.task.maxFailures", SPARK_CONF_MAX_INT)

SPARK_CONF_BLACKLIST_DISABLED = (f"{_PREFIX}.enabled", "false")
SPARK_CONF_BLACKLIST_ENABLED = (f"{_PREFIX}.enabled", "true")

# Other tasks of a stage, on an executor or a node where tasks have failed.
SPARK_CONF_REUSE_FAILED_EXECUTOR = (f"{_PREFIX}.stage.maxFailedTasksPerExecutor", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR = (f"{_PREFIX}.stage.maxFailedTasksPerExecutor", "1")
SPARK_CONF_REUSE_FAILING_NODE = (f"{_PREFIX}.stage.maxFailedExecutorsPerNode", SPARK_CONF_MAX_INT_MINUS_ONE)
SPARK_CONF_DONT_REUSE_FAILING_NODE = (f"{_PREFIX}.stage.maxFailedExecutorsPerNode", "1")

# The same task, on an executor or a node where it has failed. Spark wants fewer attempts on a node than there may be in all.
SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK = (f"{_PREFIX}.task.maxTaskAttemptsPerExecutor", SPARK_CONF_MAX_INT)
SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK = (f"{_PREFIX}.task.maxTaskAttemptsPerExecutor", "2")
SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK = (f"{_PREFIX}.task.maxTaskAttemptsPerExecutor", "1")
SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK = (f"{_PREFIX}.task.maxTaskAttemptsPerNode", SPARK_CONF_MAX_INT_MINUS_ONE)
SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK = (f"{_PREFIX}.task.maxTaskAttemptsPerNode", "2")
SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK = (f"{_PREFIX}.task.maxTaskAttemptsPerNode", "1")

# Other stages of the application.
SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP = (f"{_PREFIX}.application.maxFailedTasksPerExecutor", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP = (f"{_PREFIX}.application.maxFailedTasksPerExecutor", "1")
SPARK_CONF_REUSE_FAILING_NODE_IN_APP = (f"{_PREFIX}.application.maxFailedExecutorsPerNode", SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP = (f"{_PREFIX}.application.maxFailedExecutorsPerNode", "1")

# What Spark has where nothing is set.
SPARK_CONF_DEFAULT_VALUES = {
    "spark.task.maxFailures": "4",
    f"{_PREFIX}.enabled": "false",
    f"{_PREFIX}.stage.maxFailedTasksPerExecutor": "2",
    f"{_PREFIX}.stage.maxFailedExecutorsPerNode": "2",
    f"{_PREFIX}.task.maxTaskAttemptsPerExecutor": "1",
    f"{_PREFIX}.task.maxTaskAttemptsPerNode": "2",
    f"{_PREFIX}.application.maxFailedTasksPerExecutor": "2",
    f"{_PREFIX}.application.maxFailedExecutorsPerNode": "2",
}
