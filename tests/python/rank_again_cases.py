"""The cases of operations that come again, which take a short way; runs as a rank (test_multi.py), on any number of ranks.

What is unusual must go the long way: each case does it with a name whose operation has come before.
"""

import contextlib
import gc
import sys
import threading
import warnings

import numpy as np
import torch
from rank_side import raises, run_cases

import horovod.torch as hvd
from horovod.common import _lib, _wait
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import _allreduce, _broadcast, _host_groups, _plans

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
SHORT_WAYS = [(_allreduce, "execute_again"), (_broadcast, "execute_again"), (_allreduce, "execute_host_group"),
              (_allreduce, "_start_host_group")]  # fmt: skip


@contextlib.contextmanager
def replaced(replacement):
    """Replaces each short way by what `replacement` makes of it."""
    kept = [getattr(module, name) for module, name in SHORT_WAYS]
    try:
        for (module, name), function in zip(SHORT_WAYS, kept):
            setattr(module, name, replacement(function))
        yield
    finally:
        for (module, name), function in zip(SHORT_WAYS, kept):
            setattr(module, name, function)


def is_short(call):
    """Returns whether the call went a short way, and what it returned."""
    taken = []

    def noted(function):
        def note(*arguments):
            result = function(*arguments)
            taken.append(result is not None)
            return result

        return note

    with replaced(noted):
        result = call()
    return True in taken, result


def outcome(call):
    try:
        result = call()
    except Exception as error:
        return type(error), str(error)
    return [(t.dtype, t.shape, t.stride(), t.tolist()) for t in (result if isinstance(result, list) else [result])]


def check_same(call):
    """Checks that the call goes the long way and does what it does where there is no short one. Returns the outcome."""
    short, found = is_short(lambda: outcome(call))
    assert not short
    with replaced(lambda _: lambda *arguments: None):
        expected = outcome(call)
    assert found == expected, (found, expected)
    return found


def mine():
    return torch.arange(6.0).reshape(2, 3) + RANK


TOTAL = torch.arange(6.0).reshape(2, 3) * SIZE + sum(range(SIZE))
FORMS = {
    "allreduce_": lambda t, **o: hvd.allreduce_(t, name="again allreduce_", op=hvd.Sum, **o),
    "allreduce": lambda t, **o: hvd.allreduce(t, name="again allreduce", op=hvd.Sum, **o),
    "broadcast_": lambda t, **o: hvd.broadcast_(t, 0, name="again broadcast_", **o),
    "broadcast": lambda t, **o: hvd.broadcast(t, 0, name="again broadcast", **o),
    "list_": lambda t, **o: hvd.grouped_allreduce_([t, torch.ones(2)], name="again list_", op=hvd.Sum, **o),
    "list": lambda t, **o: hvd.grouped_allreduce([t, torch.ones(2)], name="again list", op=hvd.Sum, **o),
    "list later": lambda t, **o: hvd.synchronize(
        hvd.grouped_allreduce_async([t, torch.ones(2)], name="again list later", op=hvd.Sum, **o)
    ),
}


def first_of(result):
    return result[0] if isinstance(result, list) else result


def expected_of(form):
    return torch.arange(6.0).reshape(2, 3) if form.startswith("broadcast") else TOTAL


def case_the_second_time_takes_the_short_way():
    for form, call in FORMS.items():
        for time in range(4):
            tensor = mine()
            short, result = is_short(lambda: call(tensor))
            assert short == (time > 0), (form, time)
            assert torch.equal(first_of(result), expected_of(form)), (form, time)
            assert (first_of(result) is tensor) == form.endswith("_"), form
            assert form.endswith("_") or torch.equal(tensor, mine()), form


def case_memory_that_changes():
    for form, call in FORMS.items():
        call(mine())
        call(mine())
        tensor = mine()
        for _ in range(3):
            tensor.data = mine()
            short, result = is_short(lambda: call(tensor))
            assert short and torch.equal(first_of(result), expected_of(form)), form
        given = mine().t()
        tensor.data = given  # the same tensor, with its values in another order
        if form.endswith("_"):
            assert check_same(lambda: call(tensor)) == (ValueError, "Tensor is required to be contiguous."), form
        else:
            check_same(lambda: call(tensor))
            assert torch.equal(first_of(call(tensor)), expected_of(form).t()), form
        tensor.data = mine().reshape(-1)
        assert first_of(call(tensor)).shape == (6,)
        tensor.data = mine().reshape(-1)
        tensor.resize_(2)
        assert torch.equal(first_of(call(tensor)), expected_of(form).reshape(-1)[:2]), form


def case_one_plan_in_and_out_of_place():
    """All forms of a name share its plan, and where its memory is."""
    one, other = mine(), mine()
    forms = [
        lambda t: hvd.allreduce_(t, name="shared", op=hvd.Sum),
        lambda t: hvd.allreduce(t, name="shared", op=hvd.Sum),
        lambda t: hvd.synchronize(hvd.allreduce_async_(t, name="shared", op=hvd.Sum)),
        lambda t: hvd.synchronize(hvd.allreduce_async(t, name="shared", op=hvd.Sum)),
        lambda t: hvd.allreduce(t, name="shared", op=hvd.Sum, compression=hvd.Compression.bf16),
    ]
    for first in forms:
        for second in forms:
            for tensor in (one, other):
                for form in (first, second, first):
                    tensor.copy_(mine())
                    assert torch.equal(form(tensor), TOTAL)


def case_unusual_tensors():
    class Own(torch.Tensor):
        pass

    for form, call in FORMS.items():
        negative = torch._neg_view(mine())
        assert not is_short(lambda: call(negative))[0], form
        assert torch.equal(first_of(call(torch._neg_view(mine()))), -expected_of(form)), form
        for _ in range(2):
            short, result = is_short(lambda: call(torch.complex(mine(), -mine())))
            assert not short and torch.equal(first_of(result), torch.complex(expected_of(form), -expected_of(form))), form
        assert not is_short(lambda: call(mine().double()))[0]
        assert first_of(call(mine().double())).dtype == torch.float64
        if not form.startswith("list"):
            with torch.no_grad():
                assert not is_short(lambda: call(torch.nn.Parameter(mine())))[0], form
                assert not is_short(lambda: call(mine().as_subclass(Own)))[0], form
        for wrong in (mine().to_sparse(), mine().to_sparse_csr(), mine().to_mkldnn(), torch.nested.nested_tensor([mine()]),
                      mine().to("meta"), mine().numpy(), 3, None):  # fmt: skip
            found = check_same(lambda: call(wrong))
            assert isinstance(found[0], type) and issubclass(found[0], Exception), (form, wrong, found)
        found = check_same(lambda: torch.func.vmap(call)(mine().expand(4, 2, 3)))
        assert issubclass(found[0], RuntimeError), found


def case_gradients():
    for form in ("allreduce", "broadcast", "list"):
        tensor = mine().requires_grad_()
        short, result = is_short(lambda: FORMS[form](tensor))
        first_of(result).sum().backward()
        assert tensor.grad is not None and (form == "list" or not short), form
        with torch.no_grad():
            result = FORMS[form](tensor)
            assert not first_of(result).requires_grad and torch.equal(first_of(result), expected_of(form))


def case_unusual_arguments():
    for form in ("allreduce_", "allreduce", "list_", "list"):
        call = FORMS[form]
        factor = torch.tensor(1.0, dtype=torch.float64)
        for value in (1.0, 2.0, 3.0):
            factor.fill_(value)
            assert torch.equal(first_of(call(mine(), prescale_factor=factor)), TOTAL * value)
            assert torch.equal(first_of(call(mine(), postscale_factor=factor.numpy())), TOTAL * value)
            assert torch.equal(first_of(call(mine(), postscale_factor=np.float32(value))), TOTAL * value)
        raises(ValueError, call, mine(), prescale_factor="many")
        raises(TypeError, call, mine(), prescale_factor=[1.0])
        assert check_same(lambda: call(mine(), process_set=None))[0] is ValueError
        assert check_same(lambda: call(mine(), process_set=hvd.ProcessSet([0])))[0] is ValueError
        assert check_same(lambda: call(mine(), average=True))[0] is ValueError
    for name in (["again"], 3):
        for function in (hvd.allreduce_, hvd.allreduce):
            assert check_same(lambda: function(mine(), name=name))[0] is TypeError
    for op in (99, "sum", [hvd.Sum]):
        for function, given in ((hvd.allreduce_, mine()), (hvd.allreduce, mine()), (hvd.grouped_allreduce_, [mine()])):
            raises(ValueError, function, given, name="again", op=op)
    assert isinstance(check_same(lambda: hvd.broadcast_(mine(), SIZE, name="again broadcast_"))[0], type)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert torch.equal(hvd.allreduce_(mine(), average=False, name="again allreduce_"), TOTAL)
    assert [warning.category for warning in told] == [DeprecationWarning]
    assert hvd.allreduce(mine(), name="again allreduce", op=hvd.Sum, compression=hvd.Compression.fp16).dtype == torch.float32
    for wrong in ([], mine(), (t for t in ()), 3, [mine(), 3], [torch.ones(1)] * 5000):
        for function in (hvd.grouped_allreduce_, hvd.grouped_allreduce, hvd.grouped_allreduce_async_):
            assert isinstance(check_same(lambda: function(wrong, name="again list_", op=hvd.Sum))[0], type)


def case_a_process_set_beside():
    if SIZE < 3:
        return
    members = hvd.add_process_set([0, SIZE - 1])
    for _ in range(3):
        hvd.allreduce_(mine(), name="beside", op=hvd.Sum)
        if members.included():
            reduced = hvd.allreduce_(mine(), name="beside", op=hvd.Sum, process_set=members)
            assert torch.equal(reduced, torch.arange(6.0).reshape(2, 3) * 2 + SIZE - 1)
    assert hvd.remove_process_set(members)


def case_lists_of_one_name_that_differ():
    for time in range(6):
        shapes = [(3,), (2 + time % 2,), (3,)]
        results = hvd.grouped_allreduce_([torch.ones(shape) for shape in shapes], op=hvd.Sum, name="differ")
        assert [(tuple(r.shape), r.tolist()) for r in results] == [(s, [SIZE] * s[0]) for s in shapes]
        types = [torch.float32, torch.float64 if time % 2 else torch.float32, torch.float32]
        results = hvd.grouped_allreduce([torch.ones(2, dtype=dtype) for dtype in types], op=hvd.Sum, name="types")
        assert [(r.dtype, r.tolist()) for r in results] == [(dtype, [SIZE] * 2) for dtype in types]


def case_a_failure_is_the_same_and_passes():
    for _ in range(3):
        if SIZE > 1:
            raises(HorovodInternalError, hvd.allreduce_, torch.ones(2 + min(RANK, 1)), name="fails")
            raises(HorovodInternalError, hvd.grouped_allreduce_, [torch.ones(2 + min(RANK, 1))] * 1, name="fail")
        assert torch.equal(hvd.allreduce_(torch.ones(2), name="fails"), torch.ones(2))
        assert torch.equal(hvd.grouped_allreduce_([torch.ones(2)], name="fail")[0], torch.ones(2))


def case_threads_share_no_plan():
    wrong = []

    def reduce():
        for _ in range(100):
            result = hvd.allreduce_(torch.ones(7), op=hvd.Sum)
            if result.tolist() != [SIZE] * 7:
                wrong.append(result)

    threads = [threading.Thread(target=reduce) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def case_names_that_never_come_again_are_forgotten():
    for number in range(1500):
        hvd.allreduce_(torch.ones(1), name=f"once {number}")
    assert len(_plans._free) <= _plans._MAX_KEYS
    assert _host_groups._operations == sum(known.operations for known in _host_groups._known.values())


def calls_of(call):
    """Returns how many functions of Python, and how many of C that they name, a call of what has come before takes; the
    fewest of some."""
    # The signal descriptor stays set: to set it again is a call more, and a slow machine does so each time.
    kept, _wait._TRUST_S = _wait._TRUST_S, 3600.0
    try:
        return _count_calls(call)
    finally:
        _wait._TRUST_S = kept


def _count_calls(call):
    _wait._watcher.arm()
    for _ in range(3):
        call()
    counts = []
    for _ in range(20):
        count = {"call": 0, "c_call": 0}

        def profile(frame, event, argument, count=count):
            if event in count:
                count[event] += 1

        gc.disable()
        sys.setprofile(profile)
        call()
        sys.setprofile(None)
        gc.enable()
        counts.append((count["call"], count["c_call"] - 1))  # without setprofile itself
    return min(counts)


def case_what_a_call_takes():
    one = torch.ones(1)
    for call, functions, of_c in (
        (lambda: hvd.allreduce_(one, name="count", op=hvd.Sum), 4, 8),
        (lambda: hvd.allreduce(one, name="count", op=hvd.Sum), 4, 10),
        (lambda: hvd.broadcast_(one, 0, name="count"), 4, 8),
        (lambda: hvd.broadcast(one, 0, name="count"), 4, 10),
    ):
        found = calls_of(call)
        assert found[0] <= functions and found[1] <= of_c, found


def case_what_a_list_takes():
    """The calls do not become more with the tensors; the library is called once to look at them, and once to reduce."""
    for function in (hvd.grouped_allreduce_, hvd.grouped_allreduce):
        few, many = ([torch.ones(3) for _ in range(count)] for count in (5, 161))
        found = [calls_of(lambda: function(tensors, name=f"count {len(tensors)}", op=hvd.Sum)) for tensors in (few, many)]
        if function is hvd.grouped_allreduce_:
            assert found[0] == found[1] and found[1][0] <= 20, found
    called = []
    kept = {name: getattr(_lib, name) for name in ("_set_memory", "_execute_group", "_enqueue_group")}
    for name, library_function in kept.items():
        setattr(_lib, name, lambda *arguments, n=name, f=library_function: called.append(n) or f(*arguments))
    try:
        hvd.grouped_allreduce_(many, name="count 161", op=hvd.Sum)
        hvd.grouped_allreduce(many, name="count 161", op=hvd.Sum)
    finally:
        for name, library_function in kept.items():
            setattr(_lib, name, library_function)
    assert called == (["_execute_group"] if _host_groups.VIEW is None else ["_set_memory", "_execute_group"]) * 2, called


def case_lists_where_torch_shows_nothing_to_c():
    """As with versions of torch that have no such function."""
    kept, _host_groups.VIEW = _host_groups.VIEW, None
    try:
        case_lists_of_one_name_that_differ()
        case_memory_that_changes()
        case_unusual_tensors()
        case_unusual_arguments()
        for function in (hvd.grouped_allreduce_, hvd.grouped_allreduce):
            for _ in range(3):
                short, results = is_short(lambda: function([mine(), torch.ones(2)], name="without", op=hvd.Sum))
            assert short and torch.equal(results[0], TOTAL)
    finally:
        _host_groups.VIEW = kept


def case_after_leaving_and_joining_again():
    for call in FORMS.values():
        call(mine())
    if SIZE == 1:
        hvd.shutdown()
        for form, call in FORMS.items():
            raises(HorovodInternalError, call, mine())
        hvd.init()
    for form, call in FORMS.items():
        for _ in range(3):
            assert torch.equal(first_of(call(mine())), expected_of(form)), form


run_cases(globals(), hvd.barrier)
