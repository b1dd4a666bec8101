// libhvd.so as a stranger loads it: what it exports, what it refuses, how it comes and goes.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "hvd/hvd.h"

extern "C" const char* hvd_c99_steps(void);

namespace hvd::test::abi_test {
namespace {

std::string exported_symbols() {
  std::string text;
  const std::string command = "nm -D --defined-only -j '" HVD_TEST_LIBRARY "' | sort";
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 256> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) {
    text += line.data();
  }
  ::pclose(pipe);
  return text;
}

// Exit status of a child that runs `body`; one that hangs is ended, late, since the machine may be busy.
int status_of_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(300);
    body();
    ::_exit(99);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

const std::int64_t kShape[2] = {2, 2};
float input[4] = {1, 2, 3, 4};
float output[4];

hvd_op good_op() {
  hvd_op op = HVD_OP_INIT;
  op.ndim = 2;
  op.shape = kShape;
  op.name = "x";
  op.input = input;
  op.output = output;
  return op;
}

// GoodGroup is two operations that can be done together; the result of the second one is in `more`.
struct GoodGroup {
  GoodGroup() {
    second.name = "y";
    second.output = more;
  }
  GoodGroup(const GoodGroup&) = delete;
  GoodGroup& operator=(const GoodGroup&) = delete;

  float more[4] = {};
  hvd_op first = good_op();
  hvd_op second = good_op();
  const hvd_op* group[2] = {&first, &second};
};

const std::int32_t kTwoSplits[2] = {1, 3};
const std::int32_t kNegativeSplit[1] = {-1};

void make_alltoall(hvd_op& op, const std::int32_t* splits, std::int32_t count) {
  op.kind = HVD_ALLTOALL;
  op.output = nullptr;
  op.splits = splits;
  op.split_count = count;
}

struct Bad {
  const char* text;  // part of the error
  std::function<void(hvd_op&)> spoil;
};

const std::int64_t kNegative[2] = {2, -1};
const std::int64_t kHuge[2] = {std::int64_t{1} << 40, std::int64_t{1} << 40};
const std::string kLongName(1025, 'n');

const Bad kBad[] = {
    {"size is 8", [](hvd_op& op) { op.size = 8; }},
    {"version 0", [](hvd_op& op) { op.version = 0; }},
    {"newer hvd.h", [](hvd_op& op) { op.version = 2; }},
    {"and version 1, expected at least", [](hvd_op& op) { op.size = offsetof(hvd_op, splits); }},
    {"kind is 7", [](hvd_op& op) { op.kind = 7; }},
    {"kind is -1", [](hvd_op& op) { op.kind = -1; }},
    {"dtype is 11", [](hvd_op& op) { op.dtype = 11; }},
    {"reduce_op is -1", [](hvd_op& op) { op.reduce_op = -1; }},
    {"reduce_op is 6", [](hvd_op& op) { op.reduce_op = 6; }},
    {"device is -2", [](hvd_op& op) { op.device = -2; }},
    {"ndim is -1", [](hvd_op& op) { op.ndim = -1; }},
    {"ndim is 17", [](hvd_op& op) { op.ndim = 17; }},
    {"shape is NULL", [](hvd_op& op) { op.shape = nullptr; }},
    {"shape[1] is -1", [](hvd_op& op) { op.shape = kNegative; }},
    {"larger than any memory", [](hvd_op& op) { op.shape = kHuge; }},
    {"this one is empty", [](hvd_op& op) { op.name = ""; }},
    {"this one is longer", [](hvd_op& op) { op.name = kLongName.c_str(); }},
    {"input is NULL", [](hvd_op& op) { op.input = nullptr; }},
    {"output is NULL", [](hvd_op& op) { op.output = nullptr; }},
    {"overlap", [](hvd_op& op) { op.output = input + 1; }},
    {"finite", [](hvd_op& op) { op.prescale = std::nan(""); }},
    {"finite", [](hvd_op& op) { op.postscale = HUGE_VAL; }},
    {"bool",
     [](hvd_op& op) {
       op.dtype = HVD_BOOL;
       op.reduce_op = HVD_AVERAGE;
     }},
    {"bool",
     [](hvd_op& op) {
       op.dtype = HVD_BOOL;
       op.postscale = 2.0;
     }},
    {"root_rank is 1",
     [](hvd_op& op) {
       op.kind = HVD_BROADCAST;
       op.root_rank = 1;
     }},
    {"root_rank is -1",
     [](hvd_op& op) {
       op.kind = HVD_BROADCAST;
       op.root_rank = -1;
     }},
    {"splits has 2 entries, but there are 1 ranks", [](hvd_op& op) { make_alltoall(op, kTwoSplits, 2); }},
    {"splits has 0 entries", [](hvd_op& op) { make_alltoall(op, nullptr, 1); }},
    {"splits[0] is -1", [](hvd_op& op) { make_alltoall(op, kNegativeSplit, 1); }},
    {"splits add up to 3, but shape[0] is 2", [](hvd_op& op) { make_alltoall(op, kTwoSplits + 1, 1); }},
    {"output must be NULL for ALLTOALL",
     [](hvd_op& op) {
       make_alltoall(op, nullptr, 0);
       op.output = output;
     }},
    {"output must be NULL for ALLGATHER", [](hvd_op& op) { op.kind = HVD_ALLGATHER; }},
    {"output must be NULL for REDUCESCATTER", [](hvd_op& op) { op.kind = HVD_REDUCESCATTER; }},
    {"Adasum is of float16, bfloat16, float32 and float64, not of int32",
     [](hvd_op& op) {
       op.dtype = HVD_INT32;
       op.reduce_op = HVD_ADASUM;
     }},
    {"HVD_ADASUM is an operator of allreduce only",
     [](hvd_op& op) {
       op.kind = HVD_REDUCESCATTER;
       op.output = nullptr;
       op.reduce_op = HVD_ADASUM;
     }},
};

}  // namespace

TEST_CASE("the library exports the functions of hvd.h and nothing else") {
  std::string expected;
  std::ifstream list(HVD_TEST_EXPORTS);
  for (std::string line; std::getline(list, line);) {
    expected += line + "\n";
  }
  REQUIRE(expected != "");
  CHECK(exported_symbols() == expected);
}

TEST_CASE("a C99 caller goes through a whole job, fifty times") {
  const char* failed = hvd_c99_steps();
  CHECK(std::string(failed == nullptr ? "" : failed) == "");
}

TEST_CASE("a MAC is of its bytes and of this job, and of none before there is one") {
  std::array<std::uint8_t, HVD_MAC_BYTES> first{};
  CHECK(hvd_mac(nullptr, "ab", 2, first.data()) == HVD_NOT_INITIALIZED);
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  std::array<std::uint8_t, HVD_MAC_BYTES> again{};
  std::array<std::uint8_t, HVD_MAC_BYTES> other{};
  CHECK(hvd_mac(nullptr, "ab", 2, first.data()) == HVD_OK);
  CHECK(hvd_mac(nullptr, "ab", 2, again.data()) == HVD_OK);
  CHECK(hvd_mac(nullptr, "ab", 1, other.data()) == HVD_OK);
  CHECK(first == again);
  CHECK(first != other);
  CHECK(hvd_mac(nullptr, nullptr, 0, other.data()) == HVD_OK);
  CHECK(hvd_mac(nullptr, nullptr, 1, other.data()) == HVD_INVALID);
  CHECK(hvd_mac(nullptr, "ab", -1, other.data()) == HVD_INVALID);
  CHECK(hvd_mac(nullptr, "ab", 2, nullptr) == HVD_INVALID);
  CHECK(hvd_shutdown() == HVD_OK);
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  CHECK(hvd_mac(nullptr, "ab", 2, again.data()) == HVD_OK);
  CHECK(first != again);
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("before hvd_init, numbers are -1 and operations are refused") {
  std::int64_t handle = 0;
  const hvd_op op = good_op();
  CHECK(hvd_is_initialized() == 0);
  CHECK(hvd_rank(nullptr) == -1);
  CHECK(hvd_cross_size(nullptr) == -1);
  CHECK(hvd_enqueue(nullptr, &op, &handle) == HVD_NOT_INITIALIZED);
  CHECK(std::string(hvd_last_error()) == "Horovod has not been initialized; use hvd.init().");
  CHECK(hvd_wait(nullptr, 1) == HVD_NOT_INITIALIZED);
  CHECK(hvd_shutdown() == HVD_OK);
  CHECK(hvd_report_failure(HVD_FAILURE_ENDS, 1, 1, "ValueError: no") == HVD_NOT_FOUND);  // hvdrun has not started us
  CHECK(hvd_report_failure(HVD_FAILURE_ENDS, 1, 1, nullptr) == HVD_INVALID);
  CHECK(hvd_report_failure(HVD_FAILURE_NOTICED + 1, 1, 1, "") == HVD_INVALID);
  CHECK(hvd_report_failure(HVD_FAILURE_ENDS, 256, 1, "") == HVD_INVALID);
  CHECK(hvd_abi_version() == HVD_ABI_VERSION);
  CHECK(std::string(hvd_version()) == HVD_VERSION);
}

TEST_CASE("every wrong argument is refused with a text that names it, and nothing is started") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  std::int64_t handle = 0;
  for (const Bad& bad : kBad) {
    hvd_op op = good_op();
    bad.spoil(op);
    CAPTURE(bad.text);
    CHECK(hvd_enqueue(nullptr, &op, &handle) == HVD_INVALID);
    CHECK(std::string(hvd_last_error()).find(bad.text) != std::string::npos);
    CHECK(handle == 0);
  }
  const hvd_op op = good_op();
  CHECK(hvd_enqueue(nullptr, nullptr, &handle) == HVD_INVALID);
  CHECK(hvd_enqueue(nullptr, &op, nullptr) == HVD_INVALID);
  CHECK(hvd_poll(nullptr, 1, nullptr) == HVD_INVALID);
  CHECK(hvd_create(nullptr, nullptr) == HVD_INVALID);
  CHECK(hvd_enqueue(nullptr, &op, &handle) == HVD_OK);
  CHECK(hvd_wait(nullptr, handle) == HVD_OK);
  CHECK(hvd_result(nullptr, handle, nullptr) == HVD_INVALID);
  hvd_output small = HVD_OUTPUT_INIT;
  small.size = 8;
  CHECK(hvd_result(nullptr, handle, &small) == HVD_INVALID);
  CHECK(hvd_release(nullptr, handle) == HVD_OK);
  CHECK(hvd_release(nullptr, handle) == HVD_NOT_FOUND);
  CHECK(hvd_shutdown() == HVD_OK);
  hvd_options old = HVD_OPTIONS_INIT;
  old.size = 4;
  CHECK(hvd_init(&old) == HVD_INVALID);
  CHECK(hvd_is_initialized() == 0);
}

TEST_CASE("a join of one rank ends at once and names it") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_JOIN;
  for (int round = 0; round < 2; ++round) {
    std::int64_t handle = 0;
    REQUIRE(hvd_enqueue(nullptr, &op, &handle) == HVD_OK);
    CHECK(hvd_wait(nullptr, handle) == HVD_OK);
    hvd_output result = HVD_OUTPUT_INIT;
    REQUIRE(hvd_result(nullptr, handle, &result) == HVD_OK);
    CHECK(result.size_bytes == 4);
    CHECK(result.ndim == 0);
    CHECK(*static_cast<const std::int32_t*>(result.data) == 0);
    CHECK(hvd_release(nullptr, handle) == HVD_OK);
  }
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("a call that leaves nothing to fetch leaves no handle either") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  const hvd_op op = good_op();
  std::int64_t before = 0;
  CHECK(hvd_execute(nullptr, &op, &before) == HVD_OK);
  CHECK(hvd_release(nullptr, before) == HVD_OK);
  CHECK(hvd_execute(nullptr, &op, nullptr) == HVD_OK);
  CHECK(hvd_release(nullptr, before + 1) == HVD_NOT_FOUND);
  CHECK(hvd_execute(nullptr, nullptr, nullptr) == HVD_INVALID);
  CHECK(hvd_shutdown() == HVD_OK);
  CHECK(hvd_execute(nullptr, &op, nullptr) == HVD_NOT_INITIALIZED);
}

TEST_CASE("many operations are started in one call, until one is refused") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  hvd_op first = good_op();
  first.name = "first";
  hvd_op second = good_op();
  second.name = "second";
  hvd_op wrong = good_op();
  wrong.kind = 77;
  for (const std::int32_t waits : {0, 1}) {
    const hvd_op* ops[] = {&first, &second, &wrong, &first};
    std::int64_t handles[4] = {7, 7, 7, 7};
    CHECK(hvd_enqueue_many(nullptr, ops, 2, waits, handles) == HVD_OK);
    CHECK((handles[0] > 0 && handles[1] > 0 && handles[2] == 7));
    CHECK(hvd_finish(nullptr, handles, 2) == HVD_OK);
    CHECK(hvd_enqueue_many(nullptr, ops, 4, waits, handles) == HVD_INVALID);
    CHECK((handles[1] > 0 && handles[2] == 0 && handles[3] == 0));
    CHECK(hvd_finish(nullptr, handles, 4) == HVD_OK);
    CHECK(hvd_enqueue_many(nullptr, ops, 0, waits, handles) == HVD_OK);
    ops[0] = nullptr;
    CHECK(hvd_enqueue_many(nullptr, ops, 1, waits, handles) == HVD_INVALID);
    CHECK(hvd_enqueue_many(nullptr, nullptr, 1, waits, handles) == HVD_INVALID);
    CHECK(hvd_enqueue_many(nullptr, ops, -1, waits, handles) == HVD_INVALID);
    CHECK(hvd_enqueue_many(nullptr, ops, 1, waits, nullptr) == HVD_INVALID);
  }
  CHECK(hvd_shutdown() == HVD_OK);
  std::int64_t handle = 7;
  const hvd_op* op = &first;
  CHECK(hvd_enqueue_many(nullptr, &op, 1, 0, &handle) == HVD_NOT_INITIALIZED);
  CHECK(handle == 0);
}

TEST_CASE("many handles are finished in one call, and the first failure is told") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  hvd_op op = good_op();
  op.name = nullptr;
  std::int64_t handles[3] = {0, 0, 0};
  REQUIRE(hvd_enqueue(nullptr, &op, &handles[0]) == HVD_OK);
  REQUIRE(hvd_enqueue(nullptr, &op, &handles[2]) == HVD_OK);
  const std::int64_t last = handles[2];
  CHECK(hvd_finish(nullptr, handles, 3) == HVD_OK);
  CHECK((handles[0] == 0 && handles[1] == 0 && handles[2] == 0));
  CHECK(hvd_finish(nullptr, handles, 3) == HVD_OK);
  handles[1] = last;  // forgotten already
  REQUIRE(hvd_enqueue(nullptr, &op, &handles[2]) == HVD_OK);
  CHECK(hvd_finish(nullptr, handles, 3) == HVD_NOT_FOUND);
  CHECK((handles[1] == 0 && handles[2] == 0));
  CHECK(hvd_finish(nullptr, nullptr, 1) == HVD_INVALID);
  CHECK(hvd_finish(nullptr, handles, -1) == HVD_INVALID);
  CHECK(hvd_finish(nullptr, handles, 0) == HVD_OK);
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("a group that is executed leaves nothing to finish") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  GoodGroup good;
  auto& more = good.more;
  hvd_op& first = good.first;
  hvd_op& second = good.second;
  auto& group = good.group;
  const hvd_op alone = good_op();
  std::int64_t before = 0;
  REQUIRE(hvd_execute(nullptr, &alone, &before) == HVD_OK);
  for (int round = 0; round < 2; ++round) {
    more[3] = 0.0F;
    CHECK(hvd_execute_group(nullptr, group, 2) == HVD_OK);
    CHECK(more[3] == 4.0F);
  }
  for (std::int64_t handle = before + 1; handle < before + 5; ++handle) {
    CHECK(hvd_release(nullptr, handle) == HVD_NOT_FOUND);
  }
  const auto refused = [&](std::int32_t count, const std::string& text) {
    CHECK(hvd_execute_group(nullptr, group, count) == HVD_INVALID);
    CAPTURE(std::string(hvd_last_error()));
    CHECK(std::string(hvd_last_error()).find(text) != std::string::npos);
  };
  refused(0, "hvd_execute_group: count is 0");
  refused(HVD_MAX_GROUP + 1, "hvd_execute_group: count is 4097");
  second.reduce_op = HVD_MAX;
  refused(2, "operation 1 of the group differs from the first");
  second.reduce_op = HVD_SUM;
  group[0] = nullptr;
  refused(2, "operation 0 of the group is NULL");
  group[0] = &first;
  first.kind = second.kind = HVD_ALLGATHER;
  refused(2, "not allreduces; use hvd_enqueue_group");
  first.kind = second.kind = HVD_ALLREDUCE;
  CHECK(hvd_execute_group(nullptr, nullptr, 2) == HVD_INVALID);
  CHECK(hvd_execute_group(nullptr, group, 2) == HVD_OK);  // nothing that was refused is left
  CHECK(hvd_release(nullptr, before) == HVD_OK);
  CHECK(hvd_shutdown() == HVD_OK);
  CHECK(hvd_execute_group(nullptr, group, 2) == HVD_NOT_INITIALIZED);
}

namespace {

// DLPack's structure, and a function of the kind that frameworks have; its object is the structure.
struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

int view_of(void* object, void* tensor) {
  if (object == nullptr) {
    return -1;
  }
  *static_cast<DlTensor*>(tensor) = *static_cast<const DlTensor*>(object);
  return 0;
}

}  // namespace

TEST_CASE("the memory of operations is set to that of tensors that fit") {
  float values[8] = {};
  std::int64_t shape[] = {2, 1, 2};
  std::int64_t strides[] = {2, 77, 1};  // of an extent of 1 it does not matter
  const DlTensor good{values, 1, 0, 3, 2, 32, 1, shape, strides, 4};
  DlTensor tensor = good;
  hvd_op op = HVD_OP_INIT;
  op.ndim = 3;
  op.shape = shape;
  hvd_op* const ops[] = {&op};
  void* objects[] = {&tensor};
  CHECK(hvd_set_memory(ops, objects, 1, HVD_INPUT, view_of) == HVD_OK);
  CHECK((op.input == values + 1 && op.output == nullptr));
  tensor.strides = nullptr;
  tensor.byte_offset = 0;
  CHECK(hvd_set_memory(ops, objects, 1, HVD_INPUT | HVD_OUTPUT, view_of) == HVD_OK);
  CHECK((op.input == values && op.output == values));
  const auto differs = [&](const auto& change) {
    tensor = good;
    change();
    CHECK(hvd_set_memory(ops, objects, 1, HVD_INPUT | HVD_OUTPUT, view_of) == HVD_MISMATCH);
    CHECK((op.input == values && op.output == values));
  };
  std::int64_t other[] = {2, 1, 3};
  std::int64_t turned[] = {1, 1, 2};
  differs([&] { tensor.device_type = 2; });
  differs([&] { tensor.ndim = 2; });
  differs([&] { tensor.code = 0; });
  differs([&] { tensor.bits = 64; });
  differs([&] { tensor.lanes = 2; });
  differs([&] { tensor.shape = other; });
  differs([&] { tensor.strides = turned; });
  differs([&] { objects[0] = nullptr; });
  objects[0] = &tensor;
  const std::uint8_t types[][2] = {{1, 8},  {0, 8},  {1, 16}, {0, 16}, {0, 32}, {0, 64},
                                   {2, 16}, {4, 16}, {2, 32}, {2, 64}, {6, 8}};
  for (std::int32_t dtype = 0; dtype <= HVD_BOOL; ++dtype) {
    for (std::int32_t of = 0; of <= HVD_BOOL; ++of) {
      op.dtype = dtype;
      tensor = good;
      tensor.code = types[of][0];
      tensor.bits = types[of][1];
      CHECK((hvd_set_memory(ops, objects, 1, HVD_INPUT, view_of) == HVD_OK) == (of == dtype));
    }
  }
  CHECK(hvd_set_memory(nullptr, objects, 1, HVD_INPUT, view_of) == HVD_INVALID);
  CHECK(hvd_set_memory(ops, nullptr, 1, HVD_INPUT, view_of) == HVD_INVALID);
  CHECK(hvd_set_memory(ops, objects, 1, HVD_INPUT, nullptr) == HVD_INVALID);
  CHECK(hvd_set_memory(ops, objects, -1, HVD_INPUT, view_of) == HVD_INVALID);
  hvd_op* none[] = {nullptr};
  CHECK(hvd_set_memory(none, objects, 1, HVD_INPUT, view_of) == HVD_INVALID);
  hvd_op shapeless = *ops[0];
  shapeless.shape = nullptr;
  hvd_op* shapeless_ops[] = {&shapeless};
  CHECK(hvd_set_memory(shapeless_ops, objects, 1, HVD_INPUT, view_of) == HVD_MISMATCH);
}

TEST_CASE("a group is started whole or not at all") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  GoodGroup good;
  auto& more = good.more;
  hvd_op& first = good.first;
  hvd_op& second = good.second;
  auto& group = good.group;
  std::int64_t handles[2] = {0, 0};
  const auto refused = [&](std::int32_t count, const std::string& text) {
    CHECK(hvd_enqueue_group(nullptr, group, count, handles) == HVD_INVALID);
    CAPTURE(std::string(hvd_last_error()));
    CHECK(std::string(hvd_last_error()).find(text) != std::string::npos);
    CHECK(handles[0] == 0);
  };
  refused(0, "count is 0");
  refused(HVD_MAX_GROUP + 1, "count is 4097");
  second.reduce_op = HVD_MAX;
  refused(2, "operation 1 of the group differs from the first");
  second.reduce_op = HVD_SUM;
  second.dtype = 99;
  refused(2, "operation 1 of the group: 'y': dtype is 99");
  second.dtype = HVD_FLOAT32;
  second.name = "x";
  refused(2, "currently being processed: 'x'");
  group[1] = nullptr;
  refused(2, "operation 1 of the group is NULL");
  group[1] = &second;
  first.kind = second.kind = HVD_BROADCAST;
  refused(2, "operation 0 of the group is a BROADCAST");
  first.kind = second.kind = HVD_ALLREDUCE;
  CHECK(hvd_enqueue_group(nullptr, nullptr, 2, handles) == HVD_INVALID);
  CHECK(hvd_enqueue_group(nullptr, group, 2, nullptr) == HVD_INVALID);
  second.name = "y";
  REQUIRE(hvd_enqueue_group(nullptr, group, 2, handles) == HVD_OK);
  CHECK(handles[0] != handles[1]);
  for (const std::int64_t handle : handles) {
    CHECK(hvd_wait(nullptr, handle) == HVD_OK);
    CHECK(hvd_release(nullptr, handle) == HVD_OK);
  }
  CHECK(more[3] == 4.0F);
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("empty tensors need no memory, and a bool can be reduced") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  const std::int64_t empty[2] = {0, 3};
  for (const std::int32_t kind : {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_REDUCESCATTER, HVD_ALLTOALL}) {
    hvd_op op = good_op();
    op.kind = kind;
    op.shape = empty;
    op.input = nullptr;
    op.output = nullptr;
    std::int64_t handle = 0;
    REQUIRE(hvd_enqueue(nullptr, &op, &handle) == HVD_OK);
    CHECK(hvd_wait(nullptr, handle) == HVD_OK);
    hvd_output result = HVD_OUTPUT_INIT;
    CHECK(hvd_result(nullptr, handle, &result) == HVD_OK);
    CHECK(result.size_bytes == 0);
    CHECK(result.shape[1] == 3);
    CHECK(hvd_release(nullptr, handle) == HVD_OK);
  }
  hvd_op op = good_op();
  op.dtype = HVD_BOOL;
  op.reduce_op = HVD_MAX;
  std::int64_t handle = 0;
  CHECK(hvd_enqueue(nullptr, &op, &handle) == HVD_OK);
  CHECK(hvd_release(nullptr, handle) == HVD_OK);
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("a handle of an earlier job names nothing in a later one") {
  const hvd_op op = good_op();
  std::int64_t first = 0;
  std::int64_t second = 0;
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  REQUIRE(hvd_enqueue(nullptr, &op, &first) == HVD_OK);
  REQUIRE(hvd_shutdown() == HVD_OK);
  CHECK(hvd_wait(nullptr, first) == HVD_NOT_INITIALIZED);
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  REQUIRE(hvd_enqueue(nullptr, &op, &second) == HVD_OK);
  CHECK(second != first);
  CHECK(hvd_wait(nullptr, first) == HVD_NOT_FOUND);
  CHECK(hvd_wait(nullptr, second) == HVD_OK);
  REQUIRE(hvd_shutdown() == HVD_OK);
}

TEST_CASE("explicit contexts live beside the default one") {
  hvd_ctx* ctx = nullptr;
  REQUIRE(hvd_create(nullptr, &ctx) == HVD_OK);
  CHECK(hvd_is_initialized() == 0);
  CHECK(hvd_size(ctx) == 1);
  const hvd_op op = good_op();
  std::int64_t handle = 0;
  CHECK(hvd_enqueue(ctx, &op, &handle) == HVD_OK);
  CHECK(hvd_wait(ctx, handle) == HVD_OK);
  hvd_destroy(ctx);
  hvd_destroy(nullptr);
}

TEST_CASE("a process may exit without hvd_shutdown, also one that was forked from a rank") {
  CHECK(status_of_child([] { std::exit(hvd_init(nullptr) == HVD_OK ? 5 : 6); }) == 5);
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  CHECK(status_of_child([] {
          const hvd_op op = good_op();
          std::int64_t handle = 0;
          const bool is_right = hvd_enqueue(nullptr, &op, &handle) == HVD_NOT_INITIALIZED &&
                                hvd_init(nullptr) == HVD_NOT_INITIALIZED && hvd_is_initialized() == 0 &&
                                hvd_rank(nullptr) == 0 && hvd_shutdown() == HVD_OK;
          std::exit(is_right ? 5 : 6);
        }) == 5);
  const hvd_op op = good_op();
  std::int64_t handle = 0;
  CHECK(hvd_enqueue(nullptr, &op, &handle) == HVD_OK);
  CHECK(hvd_wait(nullptr, handle) == HVD_OK);
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("a bad rank environment is an error of hvd_init, which can be tried again") {
  CHECK(status_of_child([] {
          ::setenv("HVD_RANK", "3", 1);
          ::setenv("HVD_SIZE", "2", 1);
          if (hvd_init(nullptr) != HVD_INVALID ||
              std::string(hvd_last_error()).find("HVD_RANK is '3'") == std::string::npos) {
            std::_Exit(6);
          }
          ::unsetenv("HVD_RANK");
          ::unsetenv("HVD_SIZE");
          std::_Exit(hvd_init(nullptr) == HVD_OK ? 5 : 7);
        }) == 5);
}

}  // namespace hvd::test::abi_test
