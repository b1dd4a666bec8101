// Measures the gradients of one training step: the 161 tensors of ResNet-50 (He, Zhang, Ren, Sun: Deep residual
// learning for image recognition, 2015; torchvision's layout), 25,557,032 numbers. The last layer comes first, as in a
// backward pass.
#include <cstddef>
#include <memory>
#include <new>

#include "runtime/bench/agreement.h"
#include "runtime/bench/bench_rank.h"

namespace hvd::bench {
namespace {

std::vector<std::int64_t> resnet50() {
  std::vector<std::int64_t> counts;
  const auto convolution = [&counts](std::int64_t from, std::int64_t to, std::int64_t kernel) {
    counts.push_back(to * from * kernel * kernel);
    counts.insert(counts.end(), 2, to);  // the normalisation after it: weight and bias
  };
  convolution(3, 64, 7);
  std::int64_t channels = 64;
  const int kBlocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = 64LL << stage;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      convolution(channels, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) {
        convolution(channels, 4 * width, 1);
      }
      channels = 4 * width;
    }
  }
  counts.push_back(1000 * channels);
  counts.push_back(1000);
  return {counts.rbegin(), counts.rend()};
}

enum class How { kEach, kGroup, kFlat };

const char* name_of(How how) {
  return how == How::kEach ? "each" : how == How::kGroup ? "group" : "flat";
}

class GradientStep {
 public:
  static Result<std::unique_ptr<GradientStep>> make(const BenchOptions& options, Place place, How how) {
    std::unique_ptr<GradientStep> step(new GradientStep(options, place, how));
    HVD_TRY(step->allocate());
    return step;
  }

  Result<void> run() {
    if (how_ == How::kGroup) {
      HVD_TRY(to_result(
          hvd_enqueue_group(nullptr, pointers_.data(), static_cast<std::int32_t>(ops_.size()), handles_.data()),
          "gradients"));
    } else {
      for (std::size_t i = 0; i < ops_.size(); ++i) {
        HVD_TRY(to_result(hvd_enqueue(nullptr, &ops_[i], &handles_[i]), names_[i]));
      }
    }
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      HVD_TRY(to_result(hvd_wait(nullptr, handles_[i]), names_[i]));
      HVD_TRY(to_result(hvd_release(nullptr, handles_[i]), names_[i]));
    }
    return {};
  }

  Result<std::int64_t> run_checked(std::uint64_t seed) {
    const TestData data(place_.size, options_.dtype, options_.op, seed);
    data.fill(memory_.get(), total_, place_.rank);
    HVD_TRY(run());
    return data.count_wrong_reduction(memory_.get(), total_);
  }

  void calm() { std::fill_n(memory_.get(), bytes(), std::byte{0}); }

  [[nodiscard]] std::int64_t bytes() const { return total_ * static_cast<std::int64_t>(size_of(options_.dtype)); }
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(counts_.size()); }

 private:
  GradientStep(const BenchOptions& options, Place place, How how)
      : options_(options), place_(place), how_(how), counts_(resnet50()) {
    for (const std::int64_t count : counts_) {
      total_ += count;
    }
    if (how == How::kFlat) {
      counts_ = {total_};
    }
  }

  Result<void> allocate() {
    memory_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes())]);
    if (memory_ == nullptr) {
      return Error(Code::kResource, "no memory for " + std::to_string(bytes()) + " bytes of gradients");
    }
    calm();
    std::size_t at = 0;
    handles_.resize(counts_.size());
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      names_.push_back(std::string("gradient.") + name_of(how_) + "." + std::to_string(i));
    }
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      hvd_op op = HVD_OP_INIT;
      op.kind = HVD_ALLREDUCE;
      op.dtype = static_cast<std::int32_t>(options_.dtype);
      op.reduce_op = static_cast<std::int32_t>(options_.op);
      op.ndim = 1;
      op.shape = &counts_[i];
      op.name = names_[i].c_str();
      op.input = memory_.get() + at;
      op.output = memory_.get() + at;
      at += static_cast<std::size_t>(counts_[i]) * size_of(options_.dtype);
      ops_.push_back(op);
    }
    for (const hvd_op& op : ops_) {
      pointers_.push_back(&op);
    }
    return {};
  }

  const BenchOptions options_;
  const Place place_;
  const How how_;
  std::vector<std::int64_t> counts_;
  std::int64_t total_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<std::string> names_;
  std::vector<hvd_op> ops_;
  std::vector<const hvd_op*> pointers_;
  std::vector<std::int64_t> handles_;
};

Result<Row> measure(const BenchOptions& options, Place place, How how, std::uint64_t seed) {
  HVD_TRY_ASSIGN(const auto step, GradientStep::make(options, place, how));
  HVD_TRY_ASSIGN(const std::int64_t wrong, step->run_checked(seed));
  step->calm();
  Row row;
  row.what = name_of(how);
  row.bytes = step->bytes();
  row.count = step->count();
  HVD_TRY_ASSIGN(row.in_place, time_calls(options, [&step] { return step->run(); }));
  HVD_TRY_ASSIGN(row.in_place->wrong, sum(wrong));
  return row;
}

}  // namespace

Result<void> measure_gradients(const BenchOptions& options, Place place, const PutRow& put) {
  std::uint64_t seed = 0;
  for (const How how : {How::kEach, How::kGroup, How::kFlat}) {
    HVD_TRY_ASSIGN(const Row row, measure(options, place, how, ++seed));
    put(row);
  }
  return {};
}

Result<Row> measure_each_gradient(const BenchOptions& options, Place place) {
  return measure(options, place, How::kEach, 1);
}

}  // namespace hvd::bench
