#include "runtime/controller/fusion_plan.h"

#include <algorithm>
#include <span>

#include "runtime/core/shape.h"

namespace hvd {
namespace {

using control_wire::kMaxFirstDims;
using control_wire::kMaxGroupTensors;

// Unit is what is never divided: a tensor, or those tensors of a group that have one dtype and are all on devices or
// none.
struct Unit {
  Response response;
  Request like;  // kind, dtype, operator, scales and place
  std::size_t bytes = 0;
  bool is_of_group = false;
  bool is_missed = false;  // some ranks have joined and did not ask: the response needs its counts
};

// One tensor of a Ready.
struct Tensor {
  const std::string& name;
  Dtype dtype;
  const std::vector<std::int64_t>& shape;
  std::span<const std::int64_t> first_dims;
  bool is_device;
};

// Returns the bytes that travel. Requests with impossible shapes were refused when they were decoded or submitted. What
// several ranks bring together can still exceed a number, and then counts as the largest one.
std::size_t bytes_of(const Tensor& tensor) {
  std::vector<std::int64_t> shape = tensor.shape;
  if (!tensor.first_dims.empty()) {
    shape.front() = 0;
    for (const std::int64_t rows : tensor.first_dims) {
      if (__builtin_add_overflow(shape.front(), rows, &shape.front())) {
        return SIZE_MAX;
      }
    }
  }
  return size_bytes_of(shape, tensor.dtype).value_or(SIZE_MAX);
}

std::int64_t count_of(const Tensor& tensor) {
  return static_cast<std::int64_t>(size_bytes_of(tensor.shape, tensor.dtype).value_or(0) / size_of(tensor.dtype));
}

bool has_room(const Response& response, std::size_t names, std::size_t first_dims) {
  return response.names.size() + names <= kMaxGroupTensors &&
         response.first_dims.size() + first_dims <= std::max(kMaxFirstDims, first_dims);
}

std::vector<Tensor> tensors_of(const Ready& ready, std::size_t size) {
  const Request& request = ready.request;
  const auto dims_of = [&](std::size_t tensor) {
    return ready.first_dims.empty() ? std::span<const std::int64_t>()
                                    : std::span<const std::int64_t>(ready.first_dims).subspan(tensor * size, size);
  };
  std::vector<Tensor> tensors = {{request.name, request.dtype, request.shape, dims_of(0), request.is_device}};
  for (std::size_t i = 0; i < request.group.size(); ++i) {
    const GroupTensor& tensor = request.group[i];
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, dims_of(i + 1), tensor.is_device});
  }
  return tensors;
}

void append_units(std::vector<Unit>& units, const Ready& ready, std::size_t size) {
  if (ready.error_code != 0) {
    // An error is one response for the whole group, by its first name, because ranks may disagree about the rest of the
    // group.
    Unit& unit = units.emplace_back();
    unit.response.kind = ready.request.kind;
    unit.response.process_set = ready.request.process_set;
    unit.response.error_code = ready.error_code;
    unit.response.error = ready.error;
    unit.response.names = {ready.request.name};
    return;
  }
  const std::size_t first = units.size();
  for (const Tensor& tensor : tensors_of(ready, size)) {
    const auto same =
        std::find_if(units.begin() + static_cast<std::ptrdiff_t>(first), units.end(), [&](const Unit& unit) {
          return unit.like.dtype == tensor.dtype && unit.like.is_device == tensor.is_device &&
                 has_room(unit.response, 1, tensor.first_dims.size());
        });
    Unit& unit = same == units.end() ? units.emplace_back() : *same;
    if (unit.response.names.empty()) {
      unit.response.kind = ready.request.kind;
      unit.response.answer = ready.answer;
      unit.response.process_set = ready.request.process_set;
      if (ready.request.by_members) {
        unit.response.numbers = ready.request.numbers;
      }
      unit.is_of_group = !ready.request.group.empty();
      unit.is_missed = ready.is_missed;
      unit.response.is_shared = ready.is_shared;
      unit.like = Request{ready.request.kind,
                          tensor.dtype,
                          ready.request.op,
                          ready.request.root_rank,
                          ready.request.prescale,
                          ready.request.postscale,
                          {},
                          {}};
      unit.like.is_device = tensor.is_device;
      unit.response.is_device = tensor.is_device;
    }
    unit.response.names.push_back(tensor.name);
    unit.response.first_dims.insert(unit.response.first_dims.end(), tensor.first_dims.begin(), tensor.first_dims.end());
    if (ready.request.kind == OpKind::kAllreduce) {
      unit.response.counts.push_back(count_of(tensor));
    }
    unit.bytes = sum_bytes(unit.bytes, bytes_of(tensor));
  }
}

bool is_fusible(const Unit& unit, bool fuses_groups) {
  return unit.response.error_code == 0 && is_groupable(unit.response.kind) && (fuses_groups || !unit.is_of_group);
}

}  // namespace

std::vector<Response> plan_fusion(std::vector<Ready> ready, std::size_t limit_bytes, int size, bool fuses_groups) {
  std::vector<Unit> units;
  for (const Ready& one : ready) {
    append_units(units, one, static_cast<std::size_t>(size));
  }
  std::vector<Response> plan;
  std::vector<bool> is_taken(units.size(), false);
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (is_taken[i]) {
      continue;
    }
    std::size_t bytes = is_fusible(units[i], fuses_groups) ? units[i].bytes : limit_bytes;
    Response& response = plan.emplace_back(std::move(units[i].response));
    for (std::size_t j = i + 1; j < units.size() && bytes < limit_bytes && response.names.size() < kMaxGroupTensors;
         ++j) {
      const Response& other = units[j].response;
      if (is_taken[j] || !is_fusible(units[j], fuses_groups) || units[i].like != units[j].like ||
          response.is_shared != other.is_shared || units[j].bytes > limit_bytes - bytes ||
          !has_room(response, other.names.size(), other.first_dims.size())) {
        continue;
      }
      response.names.insert(response.names.end(), other.names.begin(), other.names.end());
      response.first_dims.insert(response.first_dims.end(), other.first_dims.begin(), other.first_dims.end());
      response.counts.insert(response.counts.end(), other.counts.begin(), other.counts.end());
      units[i].is_missed = units[i].is_missed || units[j].is_missed;
      bytes += units[j].bytes;
      is_taken[j] = true;
    }
    if (units[i].is_missed && !response.counts.empty()) {
      response.dtype = units[i].like.dtype;
      response.op = units[i].like.op;
      response.prescale = units[i].like.prescale;
      response.postscale = units[i].like.postscale;
    } else {
      response.counts.clear();
    }
  }
  return plan;
}

}  // namespace hvd
