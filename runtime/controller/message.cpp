#include "runtime/controller/message.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "runtime/core/shape.h"

namespace hvd {
namespace {

using control_wire::kBatchBytes;
using control_wire::kMaxCauseBytes;
using control_wire::kMaxNameBytes;
using control_wire::kSpec;

// The least sizes of a request and a response, which limit a hostile count.
constexpr std::size_t kMinTensorBytes = 1 + 4 + 4 + 8 + 1;
constexpr std::size_t kMinRequestBytes = 2 + 4 + 4 + 8 + 8 + kMinTensorBytes + 4 + 4 + 4 + 1 + 1;
constexpr std::size_t kMinResponseBytes = 1 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 1 + 1;
constexpr std::int32_t kLastCode = static_cast<std::int32_t>(Code::kMismatch);

void write_numbers(ByteWriter& out, const std::vector<std::int64_t>& numbers) {
  out.u32(static_cast<std::uint32_t>(numbers.size()));
  for (const std::int64_t number : numbers) {
    out.i64(number);
  }
}

void write_set_numbers(ByteWriter& out, const std::vector<std::int32_t>& numbers) {
  out.u32(static_cast<std::uint32_t>(numbers.size()));
  for (const std::int32_t number : numbers) {
    out.i32(number);
  }
}

// Writes the tensor of a Request, or another tensor of its group.
template <typename Tensor>
void write_tensor(ByteWriter& out, const Tensor& tensor) {
  out.u8(static_cast<std::uint8_t>(tensor.dtype)).text(tensor.name);
  write_numbers(out, tensor.shape);
  out.i64(tensor.shared_at).u8(tensor.is_device ? 1 : 0);
}

void write_request(ByteWriter& out, const Request& request) {
  out.u8(static_cast<std::uint8_t>(request.kind)).i32(request.process_set);
  out.u8(static_cast<std::uint8_t>(request.op));
  out.i32(request.root_rank).f64(request.prescale).f64(request.postscale);
  write_tensor(out, request);
  out.u32(static_cast<std::uint32_t>(request.group.size()));
  for (const GroupTensor& tensor : request.group) {
    write_tensor(out, tensor);
  }
  write_set_numbers(out, request.numbers);
  out.i32(request.priority).u8(request.by_members ? 1 : 0).u8(request.is_again ? 1 : 0);
}

void write_response(ByteWriter& out, const Response& response) {
  out.u8(static_cast<std::uint8_t>(response.kind)).i32(response.process_set);
  out.i32(response.error_code).text(response.error);
  out.u32(static_cast<std::uint32_t>(response.names.size()));
  for (const std::string& name : response.names) {
    out.text(name);
  }
  write_numbers(out, response.first_dims);
  write_numbers(out, response.counts);
  if (!response.counts.empty()) {
    out.u8(static_cast<std::uint8_t>(response.dtype)).u8(static_cast<std::uint8_t>(response.op));
    out.f64(response.prescale).f64(response.postscale);
  }
  out.i32(response.answer).u8(response.is_shared ? 1 : 0).u8(response.is_device ? 1 : 0);
  if (response.kind == OpKind::kSetAdd) {
    write_set_numbers(out, response.numbers);
  }
}

// Appends frames of a u32 count and that many items; a frame is closed as soon as it has kBatchBytes.
template <typename T>
void append_batches(std::string& out, std::uint16_t type, std::span<const T> batch,
                    void (*write)(ByteWriter&, const T&)) {
  ByteWriter items;
  std::uint32_t count = 0;
  const auto close = [&] {
    ByteWriter body;
    body.u32(count).raw(items.str().data(), items.str().size());
    append_frame(out, kSpec, type, body.str());
    items = ByteWriter();
    count = 0;
  };
  for (const T& item : batch) {
    write(items, item);
    ++count;
    if (items.str().size() >= kBatchBytes) {
      close();
    }
  }
  if (count > 0) {
    close();
  }
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes;
}

Result<GroupTensor> read_tensor(ByteReader& in) {
  const std::uint8_t dtype = in.u8();
  GroupTensor tensor;
  tensor.name = in.text();
  const std::uint32_t ndim = in.count(sizeof(std::int64_t));
  if (!in.ok() || !is_dtype(dtype) || !is_name(tensor.name) || ndim > kMaxDims) {
    return malformed("type, name or shape of a request");
  }
  tensor.dtype = static_cast<Dtype>(dtype);
  for (std::uint32_t i = 0; i < ndim; ++i) {
    tensor.shape.push_back(in.i64());
  }
  tensor.shared_at = in.i64();
  const std::uint8_t device = in.u8();
  tensor.is_device = device == 1;
  if (!in.ok() || device > 1) {
    return malformed("place of a tensor");
  }
  if (!size_bytes_of(tensor.shape, tensor.dtype)) {
    return malformed("impossible shape of a request");
  }
  return tensor;
}

Result<void> read_group(ByteReader& in, Request& request) {
  const std::uint32_t others = in.count(kMinTensorBytes);
  if (!in.ok() || others >= control_wire::kMaxGroupTensors || (others > 0 && !is_groupable(request.kind))) {
    return malformed("number of tensors of a group");
  }
  std::set<std::string> names = {request.name};
  for (std::uint32_t i = 0; i < others; ++i) {
    HVD_TRY_ASSIGN(GroupTensor tensor, read_tensor(in));
    if (!names.insert(tensor.name).second) {
      return malformed("a name twice in a group");
    }
    request.group.push_back(std::move(tensor));
  }
  return {};
}

// Adasum applies only to allreduce, and to floating types, whose vectors have directions.
bool is_possible(OpKind kind, ReduceOp op, Dtype dtype) {
  return op != ReduceOp::kAdasum || (kind == OpKind::kAllreduce && is_floating(dtype));
}

// Checks only whether the numbers are possible at all; the coordinator checks their meaning.
Result<std::vector<std::int32_t>> read_set_numbers(ByteReader& in) {
  std::vector<std::int32_t> numbers;
  const std::uint32_t count = in.count(sizeof(std::int32_t));
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t number = in.i32();
    if (number < 0 || (i > 0 && number <= numbers.back())) {
      return malformed("numbers of a process set");
    }
    numbers.push_back(number);
  }
  return numbers;
}

Result<Request> read_request(ByteReader& in) {
  const std::uint8_t kind = in.u8();
  const std::int32_t process_set = in.i32();
  const std::uint8_t op = in.u8();
  if (!in.ok() || !is_op_kind(kind) || !is_reduce_op(op)) {
    return malformed("kind or operator of a request");
  }
  Request request;
  request.kind = static_cast<OpKind>(kind);
  request.process_set = process_set;
  request.op = static_cast<ReduceOp>(op);
  request.root_rank = in.i32();
  request.prescale = in.f64();
  request.postscale = in.f64();
  HVD_TRY_ASSIGN(GroupTensor first, read_tensor(in));
  request.name = std::move(first.name);
  request.dtype = first.dtype;
  request.shape = std::move(first.shape);
  request.shared_at = first.shared_at;
  request.is_device = first.is_device;
  HVD_TRY(read_group(in, request));
  bool are_possible = is_possible(request.kind, request.op, request.dtype);
  for (const GroupTensor& tensor : request.group) {
    are_possible = are_possible && is_possible(request.kind, request.op, tensor.dtype);
  }
  if (!are_possible) {
    return malformed("operator of a request");
  }
  HVD_TRY_ASSIGN(request.numbers, read_set_numbers(in));
  if (!in.ok() || request.numbers.empty() == has_numbers(request.kind)) {
    return malformed("numbers of a process set");
  }
  request.priority = in.i32();
  const std::uint8_t by_members = in.u8();
  request.by_members = by_members == 1;
  if (!in.ok() || by_members > 1 || (request.by_members && request.kind != OpKind::kSetAdd)) {
    return malformed("priority or askers of a request");
  }
  const std::uint8_t again = in.u8();
  request.is_again = again == 1;
  if (!in.ok() || again > 1 || (request.is_again && (request.kind == OpKind::kJoin || is_change(request.kind)))) {
    return malformed("repetition of a request");
  }
  return request;
}

// Reads the element counts of an allreduce for which some ranks have not asked.
Result<void> read_counts(ByteReader& in, Response& response) {
  const std::uint32_t counts = in.count(sizeof(std::int64_t));
  const bool may_have = response.kind == OpKind::kAllreduce && !response.is_error();
  if (!in.ok() || (counts != 0 && (!may_have || counts != response.names.size()))) {
    return malformed("number of counts of a response");
  }
  for (std::uint32_t i = 0; i < counts; ++i) {
    response.counts.push_back(in.i64());
  }
  if (counts == 0) {
    return {};
  }
  const std::uint8_t dtype = in.u8();
  const std::uint8_t op = in.u8();
  response.prescale = in.f64();
  response.postscale = in.f64();
  if (!in.ok() || !is_dtype(dtype) || !is_reduce_op(op) || !std::isfinite(response.prescale) ||
      !std::isfinite(response.postscale) ||
      !is_possible(response.kind, static_cast<ReduceOp>(op), static_cast<Dtype>(dtype))) {
    return malformed("type, operator or scale of a response");
  }
  response.dtype = static_cast<Dtype>(dtype);
  response.op = static_cast<ReduceOp>(op);
  for (const std::int64_t count : response.counts) {
    if (!size_bytes_of(std::span(&count, 1), response.dtype)) {
      return malformed("impossible count of a response");
    }
  }
  return {};
}

Result<Response> read_response(ByteReader& in, int size) {
  Response response;
  const std::uint8_t kind = in.u8();
  response.process_set = in.i32();
  response.error_code = in.i32();
  response.error = in.text();
  if (!in.ok() || !is_op_kind(kind) || response.error_code < 0 || response.error_code > kLastCode) {
    return malformed("kind or code of a response");
  }
  response.kind = static_cast<OpKind>(kind);
  const std::uint32_t names = in.count(sizeof(std::uint32_t));
  for (std::uint32_t i = 0; i < names; ++i) {
    response.names.push_back(in.text());
    if (!in.ok() || !is_name(response.names.back())) {
      return malformed("name in a response");
    }
  }
  const std::uint32_t dims = in.count(sizeof(std::int64_t));
  for (std::uint32_t i = 0; i < dims; ++i) {
    response.first_dims.push_back(in.i64());
  }
  const bool has_dims = response.kind == OpKind::kAllgather && !response.is_error();
  const bool may_be_fused = is_groupable(response.kind) && !response.is_error();
  // There must be as many for each name as the set has ranks; only the engine knows that number.
  const bool has_right_dims = has_dims ? dims != 0 && dims % std::max(names, 1U) == 0 : dims == 0;
  if (!in.ok() || names == 0 || (names > 1 && !may_be_fused) || !has_right_dims) {
    return malformed("counts of a response");
  }
  HVD_TRY(read_counts(in, response));
  response.answer = in.i32();
  const bool is_join = response.kind == OpKind::kJoin;
  const std::uint8_t shared = in.u8();
  const bool may_be_shared = response.kind == OpKind::kAllreduce && !response.is_error() && response.counts.empty();
  response.is_shared = shared == 1;
  const std::uint8_t device = in.u8();
  response.is_device = device == 1;
  const bool may_be_on_device = !has_no_tensor(response.kind) && !response.is_error() && !response.is_shared;
  if (shared > 1 || (response.is_shared && !may_be_shared) || device > 1 || (response.is_device && !may_be_on_device)) {
    return malformed("place of a response");
  }
  if (!in.ok() || (is_join && (response.answer < 0 || response.answer >= size))) {
    return malformed("answer of a response");
  }
  if (response.kind == OpKind::kSetAdd) {
    HVD_TRY_ASSIGN(response.numbers, read_set_numbers(in));
    const bool has_ranks = !response.numbers.empty();
    if (!in.ok() || (has_ranks && (response.is_error() || response.numbers.back() >= size))) {
      return malformed("ranks of a response");
    }
  }
  return response;
}

}  // namespace

Error malformed(const char* what) {
  return Error(Code::kProtocol, std::string("malformed control message: ") + what);
}

void append_requests(std::string& out, const std::vector<Request>& batch) {
  append_batches(out, control_wire::kRequests, std::span(batch), &write_request);
}

void append_responses(std::string& out, std::span<const Response> batch) {
  append_batches(out, control_wire::kResponses, batch, &write_response);
}

void append_shutdown(std::string& out, int rank) {
  append_frame(out, kSpec, control_wire::kShutdown, ByteWriter().i32(rank).str());
}

void append_abort(std::string& out, std::string_view cause) {
  append_frame(out, kSpec, control_wire::kAbort, ByteWriter().text(cause.substr(0, kMaxCauseBytes)).str());
}

void append_answer(std::string& out, const AnswerCall& call) {
  ByteWriter body;
  body.i32(call.process_set).u64(call.round).u8(static_cast<std::uint8_t>(call.kind)).text(call.name);
  append_frame(out, kSpec, control_wire::kAnswer, body.str());
}

Result<std::vector<Request>> decode_requests(std::string_view body) {
  ByteReader in(body);
  const std::uint32_t count = in.count(kMinRequestBytes);
  std::vector<Request> batch;
  for (std::uint32_t i = 0; i < count; ++i) {
    HVD_TRY_ASSIGN(Request request, read_request(in));
    batch.push_back(std::move(request));
  }
  if (!in.finished()) {
    return malformed("length of a list of requests");
  }
  return batch;
}

Result<std::vector<Response>> decode_responses(std::string_view body, int size) {
  ByteReader in(body);
  const std::uint32_t count = in.count(kMinResponseBytes);
  std::vector<Response> batch;
  for (std::uint32_t i = 0; i < count; ++i) {
    HVD_TRY_ASSIGN(Response response, read_response(in, size));
    batch.push_back(std::move(response));
  }
  if (!in.finished()) {
    return malformed("length of a list of responses");
  }
  return batch;
}

Result<int> decode_shutdown(std::string_view body, int size) {
  ByteReader in(body);
  const std::int32_t rank = in.i32();
  if (!in.finished() || rank < 0 || rank >= size) {
    return malformed("rank of a shutdown");
  }
  return static_cast<int>(rank);
}

Result<std::string> decode_abort(std::string_view body) {
  ByteReader in(body);
  std::string cause = in.text();
  if (!in.finished() || cause.size() > kMaxCauseBytes) {
    return malformed("cause of an abort");
  }
  return cause;
}

Result<AnswerCall> decode_answer(std::string_view body) {
  ByteReader in(body);
  AnswerCall call;
  call.process_set = in.i32();
  call.round = in.u64();
  const std::uint8_t kind = in.u8();
  call.name = in.text();
  if (!in.finished() || call.process_set < 0 || !is_op_kind(kind) || !is_name(call.name)) {
    return malformed("call for an answer");
  }
  call.kind = static_cast<OpKind>(kind);
  return call;
}

}  // namespace hvd
