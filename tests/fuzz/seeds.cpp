#include "tests/fuzz/seeds.h"

#include "runtime/base/frame.h"
#include "runtime/controller/message.h"

namespace hvd::fuzz {
namespace {

// What the target control_messages reads: which message it is, and its body.
Seed control(const std::string& name, char message, const std::string& frame) {
  return {"control_messages/" + name, message + frame.substr(kFrameHeaderBytes)};
}

Seed requests(const std::string& name, const std::vector<Request>& batch) {
  std::string frame;
  append_requests(frame, batch);
  return control(name, 0, frame);
}

Seed responses(const std::string& name, const std::vector<Response>& batch) {
  std::string frame;
  append_responses(frame, batch);
  return control(name, 1, frame);
}

Request asked(OpKind kind, Dtype dtype, std::string name, std::vector<std::int64_t> shape) {
  Request request;
  request.kind = kind;
  request.dtype = dtype;
  request.name = std::move(name);
  request.shape = std::move(shape);
  return request;
}

Response answered(OpKind kind, std::vector<std::string> names) {
  Response response;
  response.kind = kind;
  response.names = std::move(names);
  return response;
}

void add_requests(std::vector<Seed>& all) {
  Request gradient = asked(OpKind::kAllreduce, Dtype::kFloat32, "grad", {3, 4});
  gradient.op = ReduceOp::kAverage;
  gradient.postscale = 0.5;
  gradient.shared_at = 4096;
  gradient.priority = 7;
  Request of_device = asked(OpKind::kBroadcast, Dtype::kInt64, "b", {1});
  of_device.root_rank = 1;
  of_device.is_device = true;
  of_device.process_set = 2;
  all.push_back(requests("requests", {gradient, of_device}));
  Request group = asked(OpKind::kAllreduce, Dtype::kFloat32, "a", {3});
  group.group = {{"b", Dtype::kFloat32, {}, 64, false}, {"c", Dtype::kFloat64, {2, 2}, -1, true}};
  all.push_back(requests("group", {group, asked(OpKind::kBarrier, Dtype::kUint8, "barrier", {})}));
  all.push_back(requests("gather", {asked(OpKind::kAllgather, Dtype::kInt64, "g", {2, 0})}));
  all.push_back(requests("scatter", {asked(OpKind::kReducescatter, Dtype::kFloat32, "r", {5, 2}),
                                     asked(OpKind::kAlltoall, Dtype::kBool, "s", {3})}));
  all.push_back(requests("joining", {asked(OpKind::kJoin, Dtype::kUint8, kJoinName, {})}));
  Request set = asked(OpKind::kSetAdd, Dtype::kUint8, "process set", {});
  set.numbers = {0, 2};
  Request buffer = asked(OpKind::kBufferAdd, Dtype::kUint8, "buffer", {4096});
  Request no_buffer = asked(OpKind::kBufferRemove, Dtype::kUint8, "no buffer", {});
  no_buffer.numbers = {1};
  all.push_back(requests("changes", {set, buffer, no_buffer}));
}

void add_responses(std::vector<Seed>& all) {
  Response fused = answered(OpKind::kAllreduce, {"a", "b"});
  fused.is_shared = true;
  Response gathered = answered(OpKind::kAllgather, {"g"});
  gathered.first_dims = {1, 2, 3};
  Response on_device = answered(OpKind::kReducescatter, {"d"});
  on_device.is_device = true;
  on_device.process_set = 1;
  all.push_back(responses("responses", {fused, gathered, on_device}));
  Response gathers = answered(OpKind::kAllgather, {"g", "h"});
  gathers.first_dims = {0, 2, 3, 9, 0, 4};
  all.push_back(responses("fused_gather", {gathers}));
  Response stood_in = answered(OpKind::kAllreduce, {"a", "b"});
  stood_in.counts = {5, 0};
  stood_in.dtype = Dtype::kFloat32;
  stood_in.postscale = 0.5;
  Response joined = answered(OpKind::kJoin, {kJoinName});
  joined.answer = 2;
  all.push_back(responses("joined", {stood_in, joined}));
  Response failed = answered(OpKind::kAllreduce, {"a"});
  failed.error_code = static_cast<std::int32_t>(Code::kMismatch);
  failed.error = "shapes differ";
  all.push_back(responses("failed", {failed}));
}

}  // namespace

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  add_requests(all);
  add_responses(all);
  std::string shutdown;
  append_shutdown(shutdown, 1);
  all.push_back(control("shutdown", 2, shutdown));
  std::string abort;
  append_abort(abort, "rank 1 was killed");
  all.push_back(control("abort", 3, abort));
  return all;
}

}  // namespace hvd::fuzz
