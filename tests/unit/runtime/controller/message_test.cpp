#include "runtime/controller/message.h"

#include <cstdint>
#include <limits>
#include <random>

#include <doctest/doctest.h>

namespace hvd::message_test {
namespace {

Request full_request() {
  return Request{OpKind::kAllreduce, Dtype::kBfloat16, ReduceOp::kProduct, 3, 0.25, -2.0, "grad/layer.1", {4, 0, 7}};
}

Request group_request() {
  Request request = full_request();
  request.group = {{"b", Dtype::kBool, {}}, {"c", Dtype::kFloat64, {1, 2}, -1, true}};
  request.is_device = true;
  return request;
}

Request set_request() {
  Request request;
  request.kind = OpKind::kSetAdd;
  request.name = "process set";
  request.numbers = {0, 3, 4};
  return request;
}

Request request_in_set() {
  Request request = full_request();
  request.process_set = 7;
  request.is_again = true;
  return request;
}

Response response_in_set() {
  Response response{OpKind::kAllgather, 0, "", {"g"}, {1}};
  response.process_set = 7;
  response.is_device = true;
  return response;
}

std::vector<Response> sample_responses() {
  return {response_in_set(),
          Response{OpKind::kAllreduce, 0, "", {"a", "b"}, {}},
          Response{OpKind::kAllgather, 0, "", {"g"}, {1, 0, 9}},
          Response{OpKind::kAllgather, 0, "", {"g", "h"}, {1, 0, 9, 2, 2, 2}},
          Response{OpKind::kAllreduce,
                   0,
                   "",
                   {"a", "b"},
                   {},
                   {5, 0},
                   Dtype::kInt16,
                   ReduceOp::kMin,
                   -1,
                   0,
                   {},
                   false,
                   false,
                   0.5},
          Response{OpKind::kJoin, 0, "", {"join"}, {}, {}, Dtype::kUint8, ReduceOp::kSum, 2},
          Response{OpKind::kSetAdd, 0, "", {"set"}, {}, {}, Dtype::kUint8, ReduceOp::kSum, 7, 0, {0, 2}},
          Response{OpKind::kSetAdd, 0, "", {"set"}, {}, {}, Dtype::kUint8, ReduceOp::kSum, 8},
          Response{OpKind::kBarrier, 13, "rank 0 sent this, but rank 1 that", {"b"}, {}}};
}

std::vector<Frame> frames_of(const std::string& bytes) {
  FrameDecoder decoder(control_wire::kSpec);
  decoder.feed(as_bytes(bytes));
  std::vector<Frame> frames;
  for (;;) {
    auto frame = decoder.next();
    REQUIRE(frame.ok());
    if (!frame.value()) {
      CHECK(decoder.buffered() == 0);
      return frames;
    }
    frames.push_back(*frame.value());
  }
}

Frame one_frame(const std::string& bytes) {
  auto frames = frames_of(bytes);
  REQUIRE(frames.size() == 1);
  return frames.front();
}

}  // namespace

TEST_CASE("requests survive the wire") {
  const std::vector<Request> sent = {full_request(), group_request(), set_request(), request_in_set(),
                                     Request{OpKind::kBarrier, {}, ReduceOp::kSum, 0, 1, 1, "b", {}}};
  std::string bytes;
  append_requests(bytes, sent);
  const Frame frame = one_frame(bytes);
  CHECK(frame.type == control_wire::kRequests);
  const auto got = decode_requests(frame.body);
  REQUIRE(got.ok());
  CHECK(got.value() == sent);
}

TEST_CASE("responses survive the wire") {
  std::string bytes;
  append_responses(bytes, sample_responses());
  const Frame frame = one_frame(bytes);
  CHECK(frame.type == control_wire::kResponses);
  const auto got = decode_responses(frame.body, 3);
  REQUIRE(got.ok());
  CHECK(got.value() == sample_responses());
  CHECK_FALSE(decode_responses(frame.body, 2).ok());  // rank 2 cannot have joined last
}

TEST_CASE("shutdown and abort survive the wire; a cause is cut to its limit") {
  std::string bytes;
  append_shutdown(bytes, 2);
  append_abort(bytes, "rank 1 was killed");
  append_abort(bytes, std::string(100'000, 'x'));
  const auto frames = frames_of(bytes);
  REQUIRE(frames.size() == 3);
  CHECK(decode_shutdown(frames[0].body, 3).value() == 2);
  CHECK_FALSE(decode_shutdown(frames[0].body, 2).ok());
  CHECK(decode_abort(frames[1].body).value() == "rank 1 was killed");
  CHECK(decode_abort(frames[2].body).value().size() == control_wire::kMaxCauseBytes);
}

TEST_CASE("an empty batch is no frame, a large one is several") {
  std::string bytes;
  append_requests(bytes, {});
  append_responses(bytes, {});
  CHECK(bytes.empty());
  Request request = full_request();
  std::vector<Request> many;
  for (int i = 0; i < 3000; ++i) {
    request.name = std::to_string(i) + std::string(1000, 'n');
    many.push_back(request);
  }
  append_requests(bytes, many);
  std::vector<Request> got;
  const auto frames = frames_of(bytes);
  CHECK(frames.size() > 1);
  for (const Frame& frame : frames) {
    auto batch = decode_requests(frame.body);
    REQUIRE(batch.ok());
    got.insert(got.end(), batch.value().begin(), batch.value().end());
  }
  CHECK(got == many);
}

TEST_CASE("a message cut anywhere, or with a byte too many, is refused") {
  std::string requests;
  append_requests(requests, {full_request(), group_request()});
  std::string responses;
  append_responses(responses, sample_responses());
  std::string shutdown;
  append_shutdown(shutdown, 1);
  std::string abort;
  append_abort(abort, "cause");
  const auto refused = [](const std::string& bytes, const auto& decode) {
    const std::string body = one_frame(bytes).body;
    REQUIRE(decode(body));
    for (std::size_t cut = 0; cut < body.size(); ++cut) {
      CHECK_FALSE(decode(body.substr(0, cut)));
    }
    CHECK_FALSE(decode(body + '\0'));
  };
  refused(requests, [](const std::string& body) { return decode_requests(body).ok(); });
  refused(responses, [](const std::string& body) { return decode_responses(body, 3).ok(); });
  refused(shutdown, [](const std::string& body) { return decode_shutdown(body, 3).ok(); });
  refused(abort, [](const std::string& body) { return decode_abort(body).ok(); });
}

TEST_CASE("numbers that mean nothing are refused") {
  const auto refused = [](const Request& request) {
    std::string bytes;
    append_requests(bytes, {request});
    const auto got = decode_requests(one_frame(bytes).body);
    REQUIRE_FALSE(got.ok());
    CHECK(got.error().code() == Code::kProtocol);
  };
  Request request = full_request();
  request.kind = static_cast<OpKind>(kOpKindCount);
  refused(request);
  request = full_request();
  request.dtype = static_cast<Dtype>(11);
  refused(request);
  request = full_request();
  request.op = static_cast<ReduceOp>(6);
  refused(request);
  request = full_request();
  request.op = ReduceOp::kAdasum;
  request.dtype = Dtype::kInt32;
  refused(request);
  request.dtype = Dtype::kFloat32;
  request.kind = OpKind::kReducescatter;
  refused(request);
  request = group_request();
  request.op = ReduceOp::kAdasum;
  request.group.back().dtype = Dtype::kBool;
  refused(request);
  request = full_request();
  request.name = "";
  refused(request);
  request.name = std::string(control_wire::kMaxNameBytes + 1, 'x');
  refused(request);
  request = full_request();
  request.shape = {-1};
  refused(request);
  request.shape = std::vector<std::int64_t>(17, 1);
  refused(request);
  request.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  refused(request);
}

TEST_CASE("groups that cannot be are refused") {
  const auto refused = [](const Request& request) {
    std::string bytes;
    append_requests(bytes, {request});
    CHECK_FALSE(decode_requests(one_frame(bytes).body).ok());
  };
  Request request = group_request();
  for (const OpKind kind : {OpKind::kBroadcast, OpKind::kBarrier, OpKind::kAlltoall}) {
    request.kind = kind;
    refused(request);
  }
  request = group_request();
  request.group[1].name = "b";
  refused(request);
  request.group[1].name = request.name;
  refused(request);
  request = group_request();
  request.group[0].dtype = static_cast<Dtype>(11);
  refused(request);
  request = group_request();
  request.group[0].shape = {-1};
  refused(request);
  request = full_request();
  for (std::size_t i = 0; i < control_wire::kMaxGroupTensors; ++i) {
    request.group.push_back({"t" + std::to_string(i), Dtype::kInt8, {}});
  }
  refused(request);
  request.group.pop_back();
  std::string bytes;
  append_requests(bytes, {request});
  CHECK(decode_requests(one_frame(bytes).body).ok());
}

TEST_CASE("a request to make or end a process set names ranks or a number, each once; others name none") {
  const auto refused = [](const Request& request) {
    std::string bytes;
    append_requests(bytes, {request});
    return !decode_requests(one_frame(bytes).body).ok();
  };
  Request request = set_request();
  CHECK_FALSE(refused(request));
  request.numbers = {};
  CHECK(refused(request));
  request.numbers = {3, 3};
  CHECK(refused(request));
  request.numbers = {4, 3};
  CHECK(refused(request));
  request.numbers = {-1};
  CHECK(refused(request));
  request = full_request();
  request.numbers = {1};
  CHECK(refused(request));
  request = set_request();
  request.by_members = true;
  CHECK_FALSE(refused(request));
  request.kind = OpKind::kSetRemove;
  CHECK(refused(request));
  request = full_request();
  request.by_members = true;
  CHECK(refused(request));
}

TEST_CASE("responses that contradict themselves are refused") {
  const auto refused = [](const Response& response) {
    std::string bytes;
    append_responses(bytes, std::vector<Response>{response});
    CHECK_FALSE(decode_responses(one_frame(bytes).body, 2).ok());
  };
  refused(Response{OpKind::kAllreduce, 0, "", {}, {}});
  refused(Response{OpKind::kBroadcast, 0, "", {"a", "b"}, {}});
  refused(Response{OpKind::kAllreduce, 13, "why", {"a", "b"}, {}});
  refused(Response{OpKind::kAllreduce, 0, "", {"a"}, {1, 2}});
  refused(Response{OpKind::kAllgather, 0, "", {"a"}, {}});
  refused(Response{OpKind::kAllgather, 0, "", {"a", "b"}, {1, 2, 3}});
  refused(Response{OpKind::kAllreduce, 0, "", {"a"}, {}, {1, 2}});
  refused(Response{OpKind::kAllreduce, 0, "", {"a"}, {}, {-1}});
  refused(Response{OpKind::kAllreduce, 0, "", {"a"}, {}, {INT64_MAX}});
  refused(Response{OpKind::kAllreduce, 0, "", {"a"}, {}, {1}, static_cast<Dtype>(11)});
  refused(Response{OpKind::kAllreduce, 0, "", {"a"}, {}, {1}, Dtype::kInt8, static_cast<ReduceOp>(6)});
  refused(Response{OpKind::kAllreduce, 0, "", {"a"}, {}, {1}, Dtype::kInt8, ReduceOp::kAdasum});
  refused(Response{OpKind::kAllreduce,
                   0,
                   "",
                   {"a"},
                   {},
                   {1},
                   Dtype::kInt8,
                   ReduceOp::kSum,
                   -1,
                   0,
                   {},
                   false,
                   false,
                   std::numeric_limits<double>::infinity()});
  refused(Response{OpKind::kAllreduce, 13, "why", {"a"}, {}, {1}});
  refused(Response{OpKind::kBroadcast, 0, "", {"a"}, {}, {1}});
  refused(Response{OpKind::kJoin, 0, "", {"join"}, {}, {}, Dtype::kUint8, ReduceOp::kSum, 2});
  refused(Response{OpKind::kJoin, 0, "", {"join"}, {}, {}, Dtype::kUint8, ReduceOp::kSum, -1});
  refused(Response{OpKind::kSetAdd, 0, "", {"a"}, {}, {}, Dtype::kUint8, ReduceOp::kSum, 1, 0, {0, 2}});
  refused(Response{OpKind::kSetAdd, 0, "", {"a"}, {}, {}, Dtype::kUint8, ReduceOp::kSum, 1, 0, {1, 0}});
  refused(Response{OpKind::kSetAdd, 13, "why", {"a"}, {}, {}, Dtype::kUint8, ReduceOp::kSum, 1, 0, {0, 1}});
  refused(Response{OpKind::kAllreduce, -1, "", {"a"}, {}});
  refused(Response{OpKind::kAllreduce, 99, "", {"a"}, {}});
}

TEST_CASE("random bytes and flipped bits never do harm") {
  std::mt19937 random(3);
  std::string requests;
  append_requests(requests, {group_request()});
  std::string responses;
  append_responses(responses, sample_responses());
  const std::string bodies[] = {one_frame(requests).body, one_frame(responses).body};
  std::size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string body = round % 3 == 2 ? std::string(random() % 64, '\0') : bodies[round % 3];
    for (std::size_t flips = 0; flips <= random() % 4 && !body.empty(); ++flips) {
      body[random() % body.size()] = static_cast<char>(random());
    }
    refused += decode_requests(body).ok() ? 0U : 1U;
    refused += decode_responses(body, 3).ok() ? 0U : 1U;
    refused += decode_shutdown(body, 3).ok() ? 0U : 1U;
    refused += decode_abort(body).ok() ? 0U : 1U;
  }
  CHECK(refused > 20'000);
}

TEST_CASE("a call for an answer is sent whole, and anything else is refused") {
  std::string frames;
  const AnswerCall sent{7, 1ULL << 40U, OpKind::kBroadcast, "layer1"};
  append_answer(frames, sent);
  constexpr std::size_t kBytes = 4 + 8 + 1 + 4 + 6;
  const std::string body = frames.substr(frames.size() - kBytes);
  const auto call = decode_answer(body);
  REQUIRE(call.ok());
  CHECK(call.value() == sent);
  for (std::size_t bytes = 0; bytes < body.size(); ++bytes) {
    CHECK(!decode_answer(body.substr(0, bytes)).ok());
  }
  CHECK(!decode_answer(body + "x").ok());
  for (const std::size_t wrong : {std::size_t{3}, std::size_t{12}}) {  // no process set has this number, and no kind
    std::string changed = body;
    changed[wrong] = '\xff';
    CHECK(!decode_answer(changed).ok());
  }
}

}  // namespace hvd::message_test
