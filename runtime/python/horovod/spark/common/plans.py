"""What Spark's plan of a DataFrame says: whether it only reads Parquet files, and whether another one gives the same
rows.

Both need the plan in this process, so a DataFrame of Spark Connect answers neither: its rows are always copied.
"""

from typing import Any, List, Optional, Sequence, Tuple
from urllib.parse import unquote

_FROM_HADOOP = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "gcs": "gs"}
# Not that of Delta's tables, whose class says of itself that it is Parquet, too.
_PLAIN_FORMAT = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_STEADY = ("LocalRelation", "LogicalRDD", "Range", "OneRowRelation")


def _name(node: Any) -> str:
    return node.getClass().getSimpleName()


def _items(sequence: Any) -> List[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def plain_parquet(frame: Any, names: Sequence[str]) -> Optional[List[str]]:
    """The URLs of the files whose columns of these names are the frame's, row for row; None: it is more than a scan."""
    if not hasattr(frame, "_jdf"):
        return None
    node = frame.select(*[frame[f"`{name}`"] for name in names])._jdf.queryExecution().optimizedPlan()
    while _name(node) == "Project":
        if any(_name(item) != "AttributeReference" for item in _items(node.projectList())):
            return None
        node = node.child()
    relation = _files_of(node)
    if relation is None or relation.fileFormat().getClass().getName() != _PLAIN_FORMAT or not _is_listed(relation):
        return None
    stored = set(relation.dataSchema().fieldNames())
    if not set(names) <= stored or set(names) & set(relation.partitionSchema().fieldNames()):
        return None
    return sorted(unquote(url) for url in relation.location().inputFiles())


def _files_of(leaf: Any) -> Any:
    """The relation of a scan of files; None for other leaves."""
    if _name(leaf) != "LogicalRelation":
        return None
    relation = leaf.relation()
    return relation if _name(relation) == "HadoopFsRelation" else None


def _is_listed(relation: Any) -> bool:
    """Whether Spark has listed all files of the relation, which are the data. A catalog's partitions are listed later, and of
    Delta's files only a log says which rows count."""
    return _name(relation.location()) == "InMemoryFileIndex"


def to_fsspec(url: str) -> str:
    """The URL with fsspec's name of the file system."""
    protocol, colon, rest = url.partition(":")
    return f"{_FROM_HADOOP.get(protocol, protocol)}{colon}{rest}"


def qualified(frame: Any, url: str) -> str:
    """The URL as Hadoop completes it: hdfs:///x is on the name node of its configuration."""
    session = frame.sparkSession
    path = session._jvm.org.apache.hadoop.fs.Path(url)
    return path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).makeQualified(path).toString()


def facts(frame: Any) -> Optional[Tuple[Any, ...]]:
    """What two frames of one plan must have alike to have equal rows under equal names; None: this cannot be told.

    Spark's sameSemantics() compares plans without the names of columns, and says nothing of files and settings."""
    read = _sources(frame) if hasattr(frame, "_jdf") else None
    if read is None:
        return None
    # Only for one and the same frame can values that are drawn at random be taken as equal: a search fits it often.
    drawn = None if frame._jdf.queryExecution().analyzed().deterministic() else id(frame)
    return read, tuple(frame.schema.names), _settings(frame), drawn


def _settings(frame: Any) -> Tuple[str, ...]:
    """Those of Spark SQL in the frame's session. Time zone, ANSI mode and more decide what values come out."""
    lines = frame.sparkSession._jsparkSession.conf().getAll().mkString("\n").split("\n")
    return tuple(sorted(line for line in lines if line.startswith("spark.sql.")))


def _sources(frame: Any) -> Optional[str]:
    """Which files the plan reads, with sizes and times, as one text; None: it reads what may change unseen, such as the
    clock."""
    said = []
    plan = frame._jdf.queryExecution().analyzed()
    patterns = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if plan.containsPattern(patterns.CURRENT_LIKE()):  # the time, the user or the database at the query
        return None
    if not plan.subqueriesAll().isEmpty():  # what these read is no leaf
        return None
    for leaf in _items(plan.collectLeaves()):
        relation = _files_of(leaf)
        if relation is not None and _is_listed(relation):
            said.append(relation.location().allFiles().mkString(","))
        elif _name(leaf) not in _STEADY:
            return None
    return "\n".join(said)
