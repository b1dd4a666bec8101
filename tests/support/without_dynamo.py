"""Imported before torch: its optimizers then find a stand-in in the place of torch._dynamo. The import of that takes as long as
torch's own, and tests whose ranks are started again and again compile nothing."""

import sys
import types

_stand_in = types.ModuleType("torch._dynamo")
_stand_in.disable = lambda function=None, *_, **__: function
_stand_in.graph_break = lambda *_, **__: None
sys.modules["torch._dynamo"] = _stand_in
