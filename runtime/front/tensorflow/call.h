// Call is one execution of a collective by a TensorFlow kernel. It starts libhvd's operations, and hands their results
// to TensorFlow when they have ended.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hvd/hvd.h>

#include "runtime/front/completion_pool.h"
#include "runtime/front/tensorflow/done_callback.h"
#include "runtime/front/tensorflow/tf_abi.h"

namespace hvd::front::tf {

// Node holds what a node of a graph specifies, the same for all its executions.
struct Node {
  std::int32_t kind = HVD_ALLREDUCE;
  bool is_group = false;
  std::int32_t reduce_op = HVD_SUM;
  std::int32_t root_rank = 0;
  std::int32_t process_set = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  bool waits = false;  // a call from Python outside of any graph: its thread may block until the end
  std::string title;   // for errors
  std::string name;    // of the tensor, the same on every rank; empty: libhvd numbers the calls
};

// Thread: compute() runs on TensorFlow's threads, run() on one of the pool's.
class Call final : public Job {
 public:
  // Executes the node. This is the compute function of an asynchronous kernel.
  static void compute(void* node, Context* context, void* done);

  Call(const Node& node, Context* context, void* done);
  ~Call() override;

  // Called once the operations have ended: hands the results to TensorFlow and reports the completion.
  void run() noexcept override;

 private:
  struct Part {
    hvd_op op = HVD_OP_INIT;
    std::array<std::int64_t, HVD_MAX_DIMS> dims = {};
    std::string name;
    int type = 0;              // a TF_DataType
    Tensor* output = nullptr;  // allocated beforehand where the result has the input's shape
  };

  bool prepare();
  bool prepare_part(Part& part, int index, const std::string& name);
  bool read_splits();
  void execute_here();
  static void start(std::unique_ptr<Call> call);
  hvd_status enqueue();
  bool hand_out(std::size_t index);
  void fail(int code, const std::string& text);
  void fail_as_library_says(hvd_status status, const char* text);
  static void on_done(void* call, hvd_status status, const char* text);

  const Node& node_;
  Context* const context_;
  DoneCallback done_;
  const std::int64_t step_;
  std::vector<Part> parts_;
  std::vector<std::int64_t> handles_;
  std::vector<std::int32_t> splits_;
  hvd_status status_ = HVD_OK;  // of the operations
  int code_ = kOk;              // the TF_Code to report
  std::string text_;
  bool is_watched_ = false;
};

}  // namespace hvd::front::tf
