// Collective is one kind of operation through the C interface, called again and again on the same memory. It owns that
// memory.
//
// Thread: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/base/result.h"
#include "runtime/bench/bench_wire.h"
#include "runtime/bench/test_data.h"

namespace hvd::bench {

// Turns a failed status into an Error with the C interface's text.
Result<void> to_result(hvd_status status, const std::string& doing);

struct Place {
  int rank = 0;
  int size = 1;
};

class Collective {
 public:
  // Makes one for at least `bytes` bytes, as nccl-tests counts them: whole elements, the same number for each rank.
  static Result<std::unique_ptr<Collective>> make(const BenchOptions& options, Place place, std::int64_t bytes,
                                                  bool in_place);

  // True if the operation can work on one buffer; it cannot if the runtime allocates the output.
  static bool has_in_place(Measure measure);

  // Makes one call and waits until it has finished.
  Result<void> call();
  // Makes one call on fresh data, and returns how many elements of this rank's result are wrong.
  Result<std::int64_t> call_checked(std::uint64_t seed);
  // Fills in data that repeated calls do not drive to infinity.
  void calm();

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t count() const { return block_; }

 private:
  Collective(const BenchOptions& options, Place place, std::int64_t bytes, bool in_place);
  Result<void> allocate();
  [[nodiscard]] std::int64_t wrong_in(const TestData& data, const void* result) const;

  // constant after construction
  const BenchOptions options_;
  const Place place_;
  const bool in_place_;
  const bool is_cut_;         // each rank has its own block
  const std::int64_t block_;  // elements of a block, or of the whole
  const std::int64_t bytes_;
  const std::string name_;
  std::int64_t shape_[1] = {0};
  std::size_t input_bytes_ = 0;
  std::unique_ptr<std::byte[]> input_;
  std::unique_ptr<std::byte[]> output_;
  hvd_op op_ = HVD_OP_INIT;
};

}  // namespace hvd::bench
