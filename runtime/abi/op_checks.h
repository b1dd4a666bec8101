// Checks of C callers' arguments: they turn a hvd_op into a Submission, or into an error that names the wrong field.
// The engine can then trust its input. Pure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/base/result.h"
#include "runtime/coordinate/set_table.h"
#include "runtime/engine/engine.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

// Checks rule 3 of hvd.h: a struct begins with its size and version. sizes[i] is the least size of version i + 1.
Result<void> check_struct(const char* what, std::uint32_t size, std::uint32_t version,
                          std::initializer_list<std::size_t> sizes);

// Fills in `out`, which is new. The name stays empty if the caller gave none. `sets` holds the process sets as this
// rank knows them.
Result<void> submission_from(const hvd_op& op, const SetTable& sets, Submission& out);
// Does the same for a group; `out` has as many elements. An error says which of its operations is wrong.
Result<void> submissions_from(std::span<const hvd_op* const> ops, const SetTable& sets, std::span<const OpRef> out);

// Does the same for Engine::try_quick without allocating memory. It returns nothing if the operation is invalid or not
// suited to the quick path. `set` is the one of op.process_set, and has a QuickPath.
std::optional<QuickOp> quick_op_from(const hvd_op& op, const SetPlace& set);

// Fills in the request to make a process set of these ranks (in any order) in a job of `size` ranks.
Result<void> set_of_ranks(const std::int32_t* ranks, std::int32_t count, int size, Submission& out);
// Marks such a request as one for which only the set's members ask. It is kInvalid unless `rank` is a member. Each such
// set gets its own name, because different members may ask for several sets at once.
Result<void> ask_by_members(int rank, Submission& set);

}  // namespace hvd
