#include "runtime/bench/collective.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace hvd::bench {
namespace {

std::int32_t kind_of(Measure measure) {
  switch (measure) {
    case Measure::kAllgather:
      return HVD_ALLGATHER;
    case Measure::kBroadcast:
      return HVD_BROADCAST;
    case Measure::kAlltoall:
      return HVD_ALLTOALL;
    case Measure::kReducescatter:
      return HVD_REDUCESCATTER;
    case Measure::kAllreduce:
    case Measure::kLatency:
    case Measure::kGradients:
    case Measure::kPairs:
    case Measure::kTune:
      break;
  }
  return HVD_ALLREDUCE;
}

bool is_cut(Measure measure) {
  return measure == Measure::kAllgather || measure == Measure::kAlltoall || measure == Measure::kReducescatter;
}

std::int64_t block_of(const BenchOptions& options, Place place, std::int64_t bytes) {
  const std::int64_t parts = is_cut(options.measure) ? place.size : 1;
  return std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(size_of(options.dtype)) / parts);
}

Result<std::unique_ptr<std::byte[]>> allocate_bytes(std::size_t bytes) {
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (memory == nullptr) {
    return Error(Code::kResource, "no memory for " + std::to_string(bytes) + " bytes; lower --max");
  }
  return memory;
}

}  // namespace

Result<void> to_result(hvd_status status, const std::string& doing) {
  if (status == HVD_OK) {
    return {};
  }
  return Error(static_cast<Code>(status), doing + ": " + hvd_last_error());
}

bool Collective::has_in_place(Measure measure) {
  return !is_cut(measure);
}

Result<std::unique_ptr<Collective>> Collective::make(const BenchOptions& options, Place place, std::int64_t bytes,
                                                     bool in_place) {
  std::unique_ptr<Collective> collective(new Collective(options, place, bytes, in_place));
  HVD_TRY(collective->allocate());
  return collective;
}

Collective::Collective(const BenchOptions& options, Place place, std::int64_t bytes, bool in_place)
    : options_(options),
      place_(place),
      in_place_(in_place),
      is_cut_(is_cut(options.measure)),
      block_(block_of(options, place, bytes)),
      bytes_(block_ * static_cast<std::int64_t>(size_of(options.dtype)) * (is_cut_ ? place.size : 1)),
      name_("bench." + std::string(name_of(options.measure)) + (in_place ? ".in_place" : "")) {}

Result<void> Collective::allocate() {
  const bool brings_one_block = !is_cut_ || options_.measure == Measure::kAllgather;
  shape_[0] = brings_one_block ? block_ : block_ * place_.size;
  input_bytes_ = static_cast<std::size_t>(shape_[0]) * size_of(options_.dtype);
  HVD_TRY_ASSIGN(input_, allocate_bytes(input_bytes_));
  if (!is_cut_ && !in_place_) {
    HVD_TRY_ASSIGN(output_, allocate_bytes(input_bytes_));
  }
  op_.kind = kind_of(options_.measure);
  op_.dtype = static_cast<std::int32_t>(options_.dtype);
  op_.reduce_op = static_cast<std::int32_t>(options_.op);
  op_.ndim = 1;
  op_.shape = shape_;
  op_.name = name_.c_str();
  op_.input = input_.get();
  op_.output = is_cut_ ? nullptr : in_place_ ? input_.get() : output_.get();
  calm();
  return {};
}

void Collective::calm() {
  std::memset(input_.get(), 0, input_bytes_);
  if (output_ != nullptr) {
    std::memset(output_.get(), 0, input_bytes_);
  }
}

Result<void> Collective::call() {
  if (!is_cut_) {
    return to_result(hvd_execute(nullptr, &op_, nullptr), name_);
  }
  std::int64_t handle = 0;
  HVD_TRY(to_result(hvd_execute(nullptr, &op_, &handle), name_));
  return to_result(hvd_release(nullptr, handle), name_);
}

Result<std::int64_t> Collective::call_checked(std::uint64_t seed) {
  const TestData data(place_.size, options_.dtype, options_.op, seed);
  if (output_ != nullptr) {
    std::memset(output_.get(), 0xA5, input_bytes_);
  }
  data.fill(input_.get(), shape_[0], place_.rank);
  std::int64_t handle = 0;
  HVD_TRY(to_result(hvd_execute(nullptr, &op_, &handle), name_));
  hvd_output out = HVD_OUTPUT_INIT;
  HVD_TRY(to_result(hvd_result(nullptr, handle, &out), name_));
  const std::int64_t wrong = wrong_in(data, out.data);
  HVD_TRY(to_result(hvd_release(nullptr, handle), name_));
  return wrong;
}

std::int64_t Collective::wrong_in(const TestData& data, const void* result) const {
  const auto* bytes = static_cast<const std::byte*>(result);
  const std::size_t block_bytes = static_cast<std::size_t>(block_) * size_of(options_.dtype);
  const std::int64_t own = block_ * place_.rank;  // offset of this rank's block in the input of the other ranks
  std::int64_t wrong = 0;
  switch (options_.measure) {
    case Measure::kAllreduce:
    case Measure::kLatency:
    case Measure::kGradients:
    case Measure::kPairs:
    case Measure::kTune:
      return data.count_wrong_reduction(result, block_);
    case Measure::kReducescatter:
      return data.count_wrong_reduction(result, block_, own);
    case Measure::kBroadcast:
      return data.count_wrong(result, block_, op_.root_rank);
    case Measure::kAllgather:
    case Measure::kAlltoall:
      for (int from = 0; from < place_.size; ++from) {
        const std::int64_t first = options_.measure == Measure::kAlltoall ? own : 0;
        wrong += data.count_wrong(bytes + static_cast<std::size_t>(from) * block_bytes, block_, from, first);
      }
      return wrong;
  }
  return wrong;
}

}  // namespace hvd::bench
