"""The cases of process sets; runs as a rank (test_multi.py), on any number of ranks."""

import copy

import torch
from rank_side import raises, run_cases

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import _temp_process_set_object, get_process_set_ids_and_ranks

ODD = hvd.ProcessSet([1, 3])
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = range(SIZE)


def with_sets(*sets):
    """Decorates a case: sets of those of the given ranks that the job has, if that is not all or none of them."""

    def decorate(function):
        def case():
            made = [hvd.add_process_set(ranks) for ranks in sets if 0 < len(ranks) < SIZE and max(ranks) < SIZE]
            if made:
                function(*made) if len(sets) == 1 else function(made)
            for process_set in made:
                assert hvd.remove_process_set(process_set)

        return case

    return decorate


def case_identity():
    assert hvd.global_process_set.ranks == list(RANKS) and hvd.global_process_set.process_set_id == 0
    assert hvd.global_process_set.size() == SIZE and hvd.global_process_set.rank() == RANK
    assert ODD.process_set_id is None and ODD.size() is None and ODD.rank() is None and not ODD.included()
    assert get_process_set_ids_and_ranks() == hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: list(RANKS)}
    assert str(hvd.global_process_set) == f"ProcessSet(process_set_id=0, ranks={list(RANKS)}, mpi_comm=None)"
    assert str(ODD) == "ProcessSet(process_set_id=None, ranks=[1, 3], mpi_comm=None)", "Horovod's tests compare the text"
    assert hvd.ProcessSet([1, 0]) == hvd.ProcessSet(reversed(range(2))) != hvd.ProcessSet([0])
    if SIZE > 1:
        last = hvd.add_process_set([SIZE - 1])
        assert last.ranks == [SIZE - 1] and last.size() == 1 and last.included() == (RANK == SIZE - 1)
        assert last.rank() == 0 if last.included() else "no member" in raises(ValueError, last.rank)
        assert get_process_set_ids_and_ranks() == {0: list(RANKS), last.process_set_id: [SIZE - 1]}
        assert _temp_process_set_object(last.process_set_id) is last
        assert _temp_process_set_object(0) is hvd.global_process_set
        assert "has the number 99" in raises(ValueError, _temp_process_set_object, 99)
        assert copy.deepcopy(last) is last and last != hvd.ProcessSet([SIZE - 1])
        assert hvd.remove_process_set(last) and last.process_set_id is None
        assert not hvd.remove_process_set(last)
    assert not hvd.remove_process_set(hvd.global_process_set)


def case_sets_that_cannot_be():
    for wrong in ([SIZE], [-1], [], [0, 0], list(RANKS)):
        raises(ValueError, hvd.add_process_set, wrong)
    for wrong in (3, "0", [0.5], [True], None, object()):
        raises(ValueError, hvd.ProcessSet, wrong)
    if SIZE > 1:
        raises(HorovodInternalError, hvd.add_process_set, [min(RANK, 1)])
        only = hvd.add_process_set([0])
        raises(ValueError, hvd.add_process_set, only)
        raises(ValueError, hvd.add_process_set, [0])
        if RANK > 0:
            raises(ValueError, hvd.allreduce, torch.ones(1), process_set=only)
        assert hvd.remove_process_set(only)
        raises(ValueError, hvd.allreduce, torch.ones(1), process_set=only)
    raises(ValueError, hvd.allreduce, torch.ones(1), process_set=0)
    assert torch.equal(hvd.allreduce(torch.ones(1)), torch.ones(1))


@with_sets([0, 1], [1, 2], [0, 2, 3], [1])
def case_every_operation(sets):
    for s in sets:
        if not s.included():
            continue
        n, own, total = s.size(), s.rank(), float(sum(s.ranks))
        x = torch.full((n, 2), float(RANK))
        assert torch.equal(hvd.allreduce(x, op=hvd.Sum, process_set=s), torch.full((n, 2), total))
        assert torch.allclose(hvd.allreduce(x, process_set=s, name="same name"), torch.full((n, 2), total / n))
        assert torch.equal(hvd.allreduce_(x.clone(), op=hvd.Max, process_set=s), torch.full((n, 2), float(max(s.ranks))))
        for result in hvd.grouped_allreduce([x, x], op=hvd.Sum, process_set=s):
            assert torch.equal(result, torch.full((n, 2), total))
        everything = torch.cat([torch.full((r + 1,), r) for r in s.ranks])
        assert torch.equal(hvd.allgather(torch.full((RANK + 1,), RANK), process_set=s), everything)
        assert torch.equal(hvd.grouped_allgather([torch.full((RANK + 1,), RANK)], process_set=s)[0], everything)
        for root in s.ranks:  # one of the whole job's numbers
            assert hvd.broadcast(torch.tensor(RANK), root, process_set=s).item() == root
            assert hvd.broadcast_object(RANK, root, process_set=s) == root
        assert hvd.allgather_object(RANK, process_set=s) == s.ranks
        outside = [r for r in RANKS if r not in s.ranks]
        raises(ValueError, hvd.broadcast, torch.ones(1), outside[0], process_set=s)
        sent = torch.tensor([RANK * 10 + to for to in range(n)])
        assert hvd.alltoall(sent, process_set=s).tolist() == [r * 10 + own for r in s.ranks]
        received = hvd.alltoall(sent, torch.ones(n, dtype=torch.int32), process_set=s)[1]
        assert received.tolist() == [1] * n
        assert torch.equal(hvd.reducescatter(x, op=hvd.Sum, process_set=s), torch.full((1, 2), total))
        assert torch.allclose(hvd.grouped_reducescatter([x], process_set=s)[0], torch.full((1, 2), total / n))
        hvd.barrier(process_set=s)
        handle = hvd.allreduce_async(x, op=hvd.Sum, process_set=s)
        assert torch.equal(hvd.synchronize(handle), torch.full((n, 2), total))
    assert hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum).item() == SIZE


@with_sets([0, 2], [0, 1])
def case_gradients(sets):
    for s in sets:
        if not s.included():
            continue
        n, own = s.size(), s.rank()
        x = torch.ones(n, requires_grad=True)
        hvd.allreduce(x, op=hvd.Sum, process_set=s).sum().backward()
        assert torch.equal(x.grad, torch.full((n,), float(n)))
        x = torch.ones(own + 1, requires_grad=True)
        rows = n * (n + 1) // 2
        (hvd.allgather(x, process_set=s) * torch.arange(float(rows))).sum().backward()
        begin = own * (own + 1) // 2
        assert torch.equal(x.grad, torch.arange(float(rows))[begin : begin + own + 1])
        x = torch.ones(2, requires_grad=True)
        hvd.broadcast(x, s.ranks[-1], process_set=s).sum().backward()
        assert torch.equal(x.grad, torch.ones(2) * (own == n - 1))
        x = torch.ones(n, 2, requires_grad=True)
        hvd.reducescatter(x, op=hvd.Sum, process_set=s).sum().backward()
        assert torch.equal(x.grad, torch.full((n, 2), float(n)))


@with_sets([0, 1])
def case_optimizer(pair):
    for groups in (None, 1):
        weight = torch.nn.Parameter(torch.zeros(2))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), process_set=pair, groups=groups)
        (weight * (RANK + 1.0)).sum().backward()
        optimizer.step()
        expected = -1.5 if pair.included() else -(RANK + 1.0)
        assert torch.equal(weight.detach(), torch.full((2,), expected))


def case_ranks_of_a_set_that_the_job_does_not_know_do_not_train_each_by_itself():
    gone = hvd.ProcessSet([0])
    said = raises(ValueError, gone.takes_part)
    assert "hvd.init(process_sets=[...])" in said and "hvd.add_process_set()" in said, said
    gone.is_gone = True  # no process of it is left: this one is none
    assert not gone.takes_part() and hvd.global_process_set.takes_part()
    if SIZE == 1:
        return
    only = hvd.add_process_set([0])
    assert only.takes_part() == (RANK == 0)
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    combined = hvd.DistributedOptimizer(torch.optim.SGD(weights[:1], lr=1.0), op=hvd.Adasum, process_set=only)
    reduced = hvd.DistributedOptimizer(torch.optim.SGD(weights[1:], lr=1.0), process_set=only)
    assert hvd.remove_process_set(only)
    assert "not known to the job" in raises(ValueError, combined.step)
    assert "not known to the job" in raises(ValueError, copy.deepcopy, reduced)


@with_sets([0, 1])
def case_sparse_and_norm(pair):
    if not pair.included():
        return
    sparse = torch.sparse_coo_tensor([[RANK]], [1.0], (3,), check_invariants=True)
    dense = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Average, pair)().to_dense()
    assert dense.tolist() == [0.5, 0.5, 0.0]
    norm = hvd.SyncBatchNorm(1, affine=False, process_set=pair)
    output = norm(torch.tensor([[float(RANK)]]))
    assert torch.allclose(output, torch.tensor([[2.0 * RANK - 1.0]]), atol=1e-3)


def case_sets_of_init():
    """The sets that init makes, again after every shutdown, with the same numbers."""
    hvd.shutdown()
    for _ in range(2):
        hvd.init(process_sets=[ODD, [0]] if SIZE > 3 else [hvd.ProcessSet([0])] if SIZE > 1 else [])
        known = get_process_set_ids_and_ranks()
        assert len(known) == (3 if SIZE > 3 else 2 if SIZE > 1 else 1)
        assert SIZE < 4 or (ODD.process_set_id == 1 and ODD.included() == (RANK in (1, 3)))
        if ODD.included():
            assert hvd.allreduce(torch.tensor(float(RANK)), process_set=ODD).item() == 2.0
        hvd.barrier()  # a rank that leaves ends the others' operations
        hvd.shutdown()
        assert ODD.process_set_id is None
    sets = {"first": hvd.ProcessSet([0]), "others": hvd.ProcessSet(range(1, SIZE))} if SIZE > 1 else {}
    for given in (sets.values(), (each for each in sets.values())):
        hvd.init(process_sets=given)
        assert [each.process_set_id for each in sets.values()] == [1, 2][: len(sets)]
        hvd.barrier()
        hvd.shutdown()
    hvd.init()


def case_a_later_init_adds_the_sets_that_are_new():
    if SIZE == 1:
        return
    first, same, everybody = hvd.ProcessSet([0]), hvd.ProcessSet([0]), hvd.ProcessSet(range(SIZE))
    hvd.init(process_sets=[first])
    hvd.init(process_sets=[first, same, [1], everybody])
    assert first.process_set_id == same.process_set_id > 0 and everybody.process_set_id == 0
    known = get_process_set_ids_and_ranks()
    assert [0] in known.values() and [1] in known.values() and hvd.is_initialized()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=everybody).item() == SIZE
    if RANK == 0:
        assert hvd.allreduce(torch.ones(1), process_set=same).item() == 1.0
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
