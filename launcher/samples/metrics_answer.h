// The answer to whoever asks for the metrics of a running job over HTTP, as Prometheus does: GET /metrics.
#pragma once

#include <functional>
#include <string>

#include "launcher/http/http_message.h"

namespace hvd::launch {

// `metrics`, which makes their text in the form of OpenMetrics, is called where they are to be given. `token`: what a
// caller must bring; empty: nothing. Pure but for that call.
HttpAnswer metrics_answer(const HttpRequest& request, const std::string& token,
                          const std::function<std::string()>& metrics);

}  // namespace hvd::launch
