#include "runtime/controller/fusion_plan.h"

#include "runtime/core/shape.h"

namespace hvd {
namespace {

bool is_fusible(const Ready& ready) {
  return ready.error_code == 0 && ready.request.kind == OpKind::kAllreduce;
}

bool is_alike(const Request& a, const Request& b) {
  return a.dtype == b.dtype && a.op == b.op && a.prescale == b.prescale && a.postscale == b.postscale;
}

std::size_t bytes_of(const Ready& ready) {
  // Requests with impossible shapes were refused when they were decoded or submitted.
  const auto bytes = size_bytes_of(ready.request.shape, ready.request.dtype);
  HVD_CHECK(bytes.has_value());
  return *bytes;
}

Response response_for(Ready& ready) {
  Response response;
  response.kind = ready.request.kind;
  response.error_code = ready.error_code;
  response.error = std::move(ready.error);
  response.names.push_back(ready.request.name);
  response.first_dims = std::move(ready.first_dims);
  return response;
}

}  // namespace

std::vector<Response> plan_fusion(std::vector<Ready> ready, std::size_t limit_bytes) {
  std::vector<Response> plan;
  std::vector<bool> is_taken(ready.size(), false);
  for (std::size_t i = 0; i < ready.size(); ++i) {
    if (is_taken[i]) {
      continue;
    }
    plan.push_back(response_for(ready[i]));
    std::size_t group_bytes = is_fusible(ready[i]) ? bytes_of(ready[i]) : limit_bytes;
    auto& names = plan.back().names;
    for (std::size_t j = i + 1; j < ready.size() && group_bytes < limit_bytes && names.size() < kMaxFusedTensors; ++j) {
      if (is_taken[j] || !is_fusible(ready[j]) || !is_alike(ready[i].request, ready[j].request)) {
        continue;
      }
      const std::size_t bytes = bytes_of(ready[j]);
      if (bytes <= limit_bytes - group_bytes) {
        names.push_back(ready[j].request.name);
        group_bytes += bytes;
        is_taken[j] = true;
      }
    }
  }
  return plan;
}

}  // namespace hvd
