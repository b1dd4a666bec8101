// The handler that XLA calls, against a stand-in for XLA: frames as it makes them, and a table that keeps what it is
// told.
#include <array>
#include <cstdint>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "hvd/hvd.h"
#include "runtime/front/xla/call.h"
#include "runtime/front/xla/ffi_abi.h"

extern "C" {
hvd::xla::XlaError* hvd_xla_collective(hvd::xla::Frame* frame);
std::int32_t hvd_xla_register(const hvd::xla::Api* api, char* text, std::int64_t capacity);
}

namespace hvd::xla {

struct XlaError {
  int code = 0;
  std::string text;
};
struct Future {
  std::promise<std::unique_ptr<XlaError>> outcome;  // null: available
};

namespace {

struct Registered {
  std::string name;
  std::string platform;
  Handler* execute = nullptr;
  bool is_refused = false;
} g_registered;

std::int32_t g_device = 0;

const Api& stand_in() {
  static const Api api = [] {
    Api made{};
    made.size = sizeof made;
    made.version = {sizeof(Version), nullptr, 0, 2};
    made.error_create = [](ErrorCreate* args) { return new XlaError{args->code, args->message}; };
    made.error_get_message = [](ErrorGetMessage* args) { args->message = args->error->text.c_str(); };
    made.error_destroy = [](ErrorDestroy* args) { delete args->error; };
    made.handler_register = [](HandlerRegister* args) -> XlaError* {
      if (g_registered.is_refused) {
        return new XlaError{kInvalidArgument, "not this one"};
      }
      g_registered.name.assign(args->name.text, args->name.length);
      g_registered.platform.assign(args->platform.text, args->platform.length);
      g_registered.execute = args->execute;
      return nullptr;
    };
    made.run_id_get = [](RunIdGet* args) -> XlaError* {
      args->run_id = 17;
      return nullptr;
    };
    made.device_ordinal_get = [](DeviceOrdinalGet* args) -> XlaError* {
      args->ordinal = g_device;
      return nullptr;
    };
    made.future_create = [](FutureCreate* args) -> XlaError* {
      args->future = new Future;
      return nullptr;
    };
    made.future_set_available = [](FutureSetAvailable* args) -> XlaError* {
      args->future->outcome.set_value(nullptr);
      return nullptr;
    };
    made.future_set_error = [](FutureSetError* args) -> XlaError* {
      args->future->outcome.set_value(std::unique_ptr<XlaError>(args->error));
      return nullptr;
    };
    return made;
  }();
  return api;
}

// A frame with float32 vectors, which a test may spoil.
class TestFrame {
 public:
  explicit TestFrame(std::vector<std::vector<float>> values, std::string names)
      : inputs(std::move(values)), names_(std::move(names)) {
    outputs = inputs;
    dims.resize(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      dims[i] = static_cast<std::int64_t>(inputs[i].size());
      arguments.push_back({sizeof(Buffer), nullptr, kF32, inputs[i].data(), 1, &dims[i]});
      results.push_back({sizeof(Buffer), nullptr, kF32, outputs[i].data(), 1, &dims[i]});
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      argument_values.push_back(&arguments[i]);
      result_values.push_back(&results[i]);
      kinds.push_back(kBufferValue);
    }
    set("kind", HVD_ALLREDUCE);
    set("op", HVD_SUM);
  }
  void set(const std::string& name, std::int64_t value) { numbers[name] = value; }

  Frame make() {
    attribute_names.clear();
    attribute_spans.clear();
    attribute_values.clear();
    attribute_types.clear();
    scalars.clear();
    scalars.reserve(numbers.size());
    for (auto& [name, value] : numbers) {
      scalars.push_back({kS64, &value});
      add(name, kScalarAttribute, &scalars.back());
    }
    names_span_ = {names_.data(), names_.size()};
    add("names", kStringAttribute, &names_span_);
    for (Span& span : attribute_spans) {
      attribute_names.push_back(&span);
    }
    Frame frame{};
    frame.size = sizeof frame;
    frame.api = &stand_in();
    frame.stage = kExecuteStage;
    frame.arguments = {sizeof(List), nullptr, count(argument_values), kinds.data(), argument_values.data()};
    frame.results = {sizeof(List), nullptr, count(result_values), kinds.data(), result_values.data()};
    frame.attributes = {sizeof(Attributes),     nullptr,
                        count(attribute_types), attribute_types.data(),
                        attribute_names.data(), attribute_values.data()};
    return frame;
  }
  // The text of the error with which the call ended; "": well.
  std::string run() {
    Frame frame = make();
    std::unique_ptr<XlaError> error(hvd_xla_collective(&frame));
    if (error == nullptr && frame.future != nullptr) {
      const std::unique_ptr<Future> future(frame.future);
      error = future->outcome.get_future().get();
    }
    return error == nullptr ? "" : error->text;
  }

  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> outputs;
  std::vector<std::int64_t> dims;
  std::vector<Buffer> arguments;
  std::vector<Buffer> results;
  std::vector<int> kinds;
  std::vector<void*> argument_values;
  std::vector<void*> result_values;

 private:
  template <typename T>
  static std::int64_t count(const std::vector<T>& values) {
    return static_cast<std::int64_t>(values.size());
  }
  void add(const std::string& name, int type, void* value) {
    const auto stored = kept_names_.insert({name, name}).first;
    attribute_spans.push_back({stored->second.data(), stored->second.size()});
    attribute_types.push_back(type);
    attribute_values.push_back(value);
  }

  std::string names_;
  Span names_span_{};
  std::map<std::string, std::int64_t> numbers;
  std::map<std::string, std::string> kept_names_;
  std::vector<Scalar> scalars;
  std::vector<Span> attribute_spans;
  std::vector<Span*> attribute_names;
  std::vector<int> attribute_types;
  std::vector<void*> attribute_values;
};

bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("XLA is told the lesser of its version and the newest that we know, also where it does not say its own") {
  const struct {
    int theirs;
    int answer;
  } rows[] = {{0, 1}, {1, 1}, {2, 2}, {3, 3}, {9, 3}, {-1, 1}};
  for (const auto& row : rows) {
    Api api = stand_in();
    api.version.minor = row.theirs;
    Metadata metadata{};
    metadata.state_type = 7;
    MetadataExtension extension{{sizeof(MetadataExtension), kMetadataExtension, nullptr}, &metadata};
    Extension other{sizeof(Extension), 99, &extension.base};
    Frame frame{};
    frame.extension = &other;
    frame.api = row.theirs < 0 ? nullptr : &api;
    CHECK((hvd_xla_collective(&frame) == nullptr));
    CHECK(metadata.version.major == 0);
    CHECK(metadata.version.minor == row.answer);
    CHECK(metadata.state_type == (row.answer >= 2 ? 0 : 7));  // no part of older structs
  }
}

TEST_CASE("a group of a compiled program is done, small and large, in place and not") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, std::size_t{2'000'000}}) {
    TestFrame frame({std::vector<float>(size, 2.0F), std::vector<float>(3, 5.0F)}, "a\nb['c']");
    frame.results[1].data = frame.inputs[1].data();
    CHECK(frame.run() == "");
    CHECK(frame.outputs[0].back() == 2.0F);
    CHECK(frame.inputs[1][2] == 5.0F);
  }
  TestFrame gathered({{1.0F, 2.0F}}, "gathered");
  gathered.set("kind", HVD_ALLGATHER);
  gathered.outputs[0] = {0.0F, 0.0F};
  CHECK(gathered.run() == "");
  CHECK(gathered.outputs[0] == std::vector<float>{1.0F, 2.0F});
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("a last operand that only orders a program's calls is no part of the collective") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  TestFrame frame({{1.0F, 2.0F}, {7.0F}}, "ordered");
  frame.set("ordered", 1);
  frame.set("device", 3);
  frame.outputs = {{0.0F, 0.0F}, {9.0F}};
  CHECK(frame.run() == "");
  CHECK(frame.outputs[0] == std::vector<float>{1.0F, 2.0F});
  CHECK(frame.outputs[1] == std::vector<float>{9.0F});  // nobody writes it
  Call call;
  CHECK_FALSE(read_call(frame.make(), call).has_value());
  CHECK(call.tensors.size() == 1);
  CHECK(call.told_device == 3);
  CHECK(call.bytes == 8);
  TestFrame missing({{1.0F}}, "ordered");
  missing.set("ordered", 1);
  CHECK(says(missing.run(), "1 operands, 1 results and 1 names"));
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("a call that only makes a program larger ends at once, without a job") {
  TestFrame frame({}, "");
  Frame made = frame.make();
  made.attributes.count = 0;
  CHECK((hvd_xla_collective(&made) == nullptr));
  CHECK((made.future == nullptr));
  // One that has attributes is a collective, and wrong without operands.
  CHECK(says(frame.run(), "0 operands, 0 results and 1 names"));
}

TEST_CASE("calls of one name that are made at once are done one after another") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 10; ++round) {
        TestFrame frame({std::vector<float>(i % 2 == 0 ? 10 : 2'000'000, 1.0F)}, "same");
        CHECK(frame.run() == "");
        CHECK(frame.outputs[0].back() == 1.0F);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("a call that several devices of a process make is refused") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  TestFrame frame({{1.0F}}, "on devices");
  CHECK(frame.run() == "");
  g_device = 1;
  CHECK(says(frame.run(), "several devices of this process"));
  g_device = 0;
  CHECK(frame.run() == "");
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("what a program asks for wrongly is an error with its cause, and nothing is started") {
  const auto text = [](auto spoil) {
    TestFrame frame({{1.0F}, {2.0F}}, "a\nb");
    spoil(frame);
    return frame.run();
  };
  CHECK(says(text([](TestFrame& f) { f.set("kind", HVD_JOIN); }), "of kind 6"));
  CHECK(says(text([](TestFrame& f) { f.argument_values.pop_back(); }), "1 operands, 2 results and 2 names"));
  CHECK(says(text([](TestFrame& f) { f.kinds[1] = 9; }), "b: an operand or result is no tensor"));
  CHECK(says(text([](TestFrame& f) { f.arguments[1].type = f.results[1].type = kU32; }), "b: elements"));
  CHECK(says(text([](TestFrame& f) { f.arguments[0].type = kS32; }), "a: elements"));
  CHECK(says(text([](TestFrame& f) {
               f.results[0].rank = 0;
               f.dims[0] = 4;
             }),
             "differ in size"));
  // Not initialised: the status is in the text, for Python.
  CHECK(says(text([](TestFrame&) {}), "[hvd 12] "));
}

TEST_CASE("elements that cannot be calculated with can be sent") {
  TestFrame frame({{1.0F}}, "a");
  frame.arguments[0].type = frame.results[0].type = kU32;
  frame.set("kind", HVD_BROADCAST);
  Call call;
  const Frame made = frame.make();
  CHECK_FALSE(read_call(made, call).has_value());
  CHECK(call.tensors[0].dtype == HVD_INT32);
  CHECK(call.tensors[0].name == "a");
  CHECK(call.bytes == 4);
}

TEST_CASE("a shape that other ranks cannot match under jit is explained") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  TestFrame frame({{1.0F, 2.0F}}, "short");
  std::int64_t one = 1;
  frame.set("kind", HVD_ALLGATHER);
  frame.results[0].dims = &one;
  const std::string text = frame.run();
  CHECK(says(text, "under jit"));
  CHECK(says(text, "[hvd 1]"));
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("the handler is registered under its name, and a refusal has its cause") {
  char text[32] = "";
  g_registered.is_refused = false;
  CHECK(hvd_xla_register(&stand_in(), text, std::int64_t{sizeof text}) == 0);
  CHECK(g_registered.name == "hvd_xla_collective");
  CHECK(g_registered.platform == "Host");
  CHECK((g_registered.execute == &hvd_xla_collective));
  g_registered.is_refused = true;
  CHECK(hvd_xla_register(&stand_in(), text, std::int64_t{sizeof text}) == 1);
  CHECK(std::string(text) == "not this one");
}

}  // namespace hvd::xla
