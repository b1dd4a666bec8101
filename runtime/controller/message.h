// The messages between ranks and coordinator over the control links, and their codec.
//
// These are frames (base/frame.h) with the bodies below (base/bytes.h); `name` is a text of 1 to kMaxNameBytes bytes.
//
//   rank -> coordinator   Requests  u32 n, n x request                (this rank is ready for these)
//   rank -> coordinator   Leave     (empty)                           (this rank wants to shut down)
//   coordinator -> rank   Responses u32 n, n x response               (all ranks do these now, in this order)
//   coordinator -> rank   Shutdown  i32 rank                          (in order after the responses before it)
//   both ways             Answer    i32 process set, u64 round,       (every leader answers this round of the set's
//                                   u8 kind, text name                 quick path; the coordinator relays it to them.
//                                                                     Kind and name are those of what waits)
//   both ways             Abort     text cause                        (the job is over; the coordinator relays it)
//   both ways             Goodbye   (empty)                           (all is done; end of file follows)
//
//   request   u8 kind, i32 process set, u8 op, i32 root, f64 prescale, f64 postscale, tensor, u32 n, n x tensor (the
//             rest of its group), u32 m, m x i32 (see Request::numbers), i32 priority, u8 by_members, u8 is_again
//   tensor    u8 dtype, name, u32 ndim, ndim x i64, i64 shared_at, u8 is_device
//   response  (an error is of the whole group that begins with its name)
//             u8 kind, i32 process set, i32 error code (0: none), text error, u32 n, n x name, u32 m, m x i64 first
//             dims (allgather: of the first name on each rank, then of the second, ...), u32 k, k x i64 element counts,
//             with k > 0 u8 dtype, u8 op, f64 prescale, f64 postscale (an allreduce that a joined rank takes part in),
//             i32 answer, u8 is_shared, u8 is_device
//
// Tensors that all ranks know already cost one bit each instead, see known_wire.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/frame.h"
#include "runtime/base/result.h"
#include "runtime/core/dtype.h"
#include "runtime/core/op_kind.h"

namespace hvd {

namespace control_wire {

// The version rises with any change of these messages. It also rises with any change of what data connections carry,
// because those have no version of their own: ranks of two versions must not work together.
inline constexpr FrameSpec kSpec{0x43445648U /* "HVDC" */, 9, 16U << 20U, "control"};

inline constexpr std::uint16_t kRequests = 1;
inline constexpr std::uint16_t kResponses = 2;
inline constexpr std::uint16_t kLeave = 3;
inline constexpr std::uint16_t kShutdown = 4;
inline constexpr std::uint16_t kAbort = 5;
inline constexpr std::uint16_t kGoodbye = 6;
inline constexpr std::uint16_t kAnswer = 10;  // 7 to 9: known_wire.h

inline constexpr std::size_t kMaxNameBytes = 1024;
// Longer causes are cut off: a cause must always fit into a frame and a line.
inline constexpr std::size_t kMaxCauseBytes = 4096;
// The most tensors of one group, and of one response: their names and shapes must fit into a frame, however large they
// are.
inline constexpr std::size_t kMaxGroupTensors = 4096;
// The most first dims of one response.
inline constexpr std::size_t kMaxFirstDims = 1U << 19U;
// A batch is split into several frames at this size, so that no number of operations can exceed kSpec.max_length.
inline constexpr std::size_t kBatchBytes = 1U << 20U;

}  // namespace control_wire

// GroupTensor is a tensor of a group other than the first.
struct GroupTensor {
  std::string name;
  Dtype dtype = Dtype::kUint8;
  std::vector<std::int64_t> shape;
  std::int64_t shared_at = -1;  // as in Request
  bool is_device = false;

  bool operator==(const GroupTensor&) const = default;
};

// Request means "this rank is ready for tensor `name`", or for it and all others of a group, which have one kind,
// operator and scales and are done together. A field that a kind does not use keeps its default on all ranks.
struct Request {
  OpKind kind = OpKind::kBarrier;
  Dtype dtype = Dtype::kUint8;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root_rank = 0;  // of the job
  double prescale = 1.0;
  double postscale = 1.0;
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<GroupTensor> group{};  // the others of its group
  // kSetAdd: the ranks of the set, ascending; kSetRemove, kBufferRemove: the number
  std::vector<std::int32_t> numbers{};
  std::int32_t process_set = 0;
  // An allreduce in place: its offset in the memory that its node shares; -1: it is elsewhere. Ranks may differ in it.
  std::int64_t shared_at = -1;
  std::int32_t priority = 0;  // of tensors that are ready at once the higher goes first; the lowest rank's counts
  // The tensor is in a device's memory; only the rank itself needs to know which device.
  bool is_device = false;
  bool by_members = false;  // kSetAdd: only the members of the set ask for it, for all ranks
  bool is_again = false;    // its bit came too late to count (known_wire.h); only the coordinator's count needs this

  bool operator==(const Request&) const = default;
};

// Response means "all ranks do this now", or "this cannot be done, for this reason"; it is the same for every rank.
struct Response {
  OpKind kind = OpKind::kBarrier;
  std::int32_t error_code = 0;  // a hvd::Code, 0 if the operation is to be run
  std::string error;
  std::vector<std::string> names;  // several names are fused, in packing order
  std::vector<std::int64_t>
      first_dims;  // allgather: extents of dimension 0 on each rank of the set, of each name in turn
  // What ranks that have joined need to know of an allreduce for which they have not asked; empty if no rank has
  // joined.
  std::vector<std::int64_t> counts{};  // elements of each name
  Dtype dtype = Dtype::kUint8;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t answer = -1;  // join: the rank that joined last; kSetAdd: the number of the new set
  std::int32_t process_set = 0;
  std::vector<std::int32_t> numbers{};  // kSetAdd by members: the request's, for the other ranks
  bool is_shared = false;               // each of its tensors has the same shared_at on all ranks
  bool is_device = false;               // each of its tensors is in the memory of each rank's device
  // Ranks that have joined scale what they reduce by these, if there are counts, in as many steps as the others do.
  double prescale = 1.0;
  double postscale = 1.0;

  [[nodiscard]] bool is_error() const { return error_code != 0; }
  bool operator==(const Response&) const = default;
};

// AnswerCall means "a leader waits with this operation for the answers of a round" (link/host_rounds.h).
struct AnswerCall {
  std::int32_t process_set = 0;
  std::uint64_t round = 0;
  OpKind kind = OpKind::kAllreduce;
  std::string name;

  bool operator==(const AnswerCall&) const = default;
};

// Appends as many frames as the batch needs; none for an empty one.
void append_requests(std::string& out, const std::vector<Request>& batch);
void append_responses(std::string& out, std::span<const Response> batch);
void append_shutdown(std::string& out, int rank);
void append_abort(std::string& out, std::string_view cause);
void append_answer(std::string& out, const AnswerCall& call);

// The error for a frame that no rank of this version writes; `what` is the part that is wrong.
Error malformed(const char* what);

// Decoders of the frames' bodies. Total: any input is decoded or refused with kProtocol, and nothing is allocated
// beyond the input's size.
Result<std::vector<Request>> decode_requests(std::string_view body);
// `size` is the number of ranks of the job.
Result<std::vector<Response>> decode_responses(std::string_view body, int size);
Result<int> decode_shutdown(std::string_view body, int size);
Result<std::string> decode_abort(std::string_view body);
Result<AnswerCall> decode_answer(std::string_view body);

}  // namespace hvd
