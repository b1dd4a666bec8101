// Checks of what C callers pass: a hvd_op becomes a Submission or an error that says which field is wrong. Pure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/base/result.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/set_table.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

// Rule 3 of hvd.h: a struct tells how large it is and of which version.
// sizes[i]: how large version i + 1 is at least.
Result<void> check_struct(const char* what, std::uint32_t size, std::uint32_t version,
                          std::initializer_list<std::size_t> sizes);

// Into a new one. The name stays empty when the caller gave none. `sets`: as this rank knows them.
Result<void> submission_from(const hvd_op& op, const SetTable& sets, Submission& out);
// The same for a group, with as many; an error tells which of its operations is wrong.
Result<void> submissions_from(std::span<const hvd_op* const> ops, const SetTable& sets, std::span<const OpRef> out);

// The same for Engine::try_quick, without memory of its own: what is not in order, or not for that, is nothing here.
// `set`: the one of op.process_set, with a QuickPath.
std::optional<QuickOp> quick_op_from(const hvd_op& op, const SetPlace& set);

// To make a process set of these ranks (in any order) in a job of `size` ranks.
Result<void> set_of_ranks(const std::int32_t* ranks, std::int32_t count, int size, Submission& out);
// For such a set only its members ask, of whom `rank` is one, or it is kInvalid. Several may be asked for at once, each
// by others: so each has a name of its own.
Result<void> ask_by_members(int rank, Submission& set);

}  // namespace hvd
