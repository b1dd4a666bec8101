#include "cli/options/metrics_options.h"

#include <algorithm>
#include <string>

#include "launcher/job/text_file.h"

namespace hvd::cli {
namespace {

constexpr std::size_t kMostToken = 4096;

}  // namespace

Result<launch::MetricsPlace> metrics_place_of(const Flags& flags) {
  if (flags.metrics_listen.empty()) {
    return flags.metrics_token.empty()
               ? Result<launch::MetricsPlace>(launch::MetricsPlace())
               : Error(Code::kInvalid, "--metrics-token says nothing without --metrics-listen PLACE");
  }
  std::string token;
  if (!flags.metrics_token.empty()) {
    HVD_TRY_ASSIGN(token, launch::read_text_file(flags.metrics_token, "the file of --metrics-token", kMostToken));
    token.erase(std::min(token.find_first_of(" \t\r\n"), token.size()));
    if (token.empty()) {
      return Error(Code::kInvalid, "--metrics-token " + flags.metrics_token + ": the file holds no token");
    }
  }
  const auto place = launch::parse_metrics_place(flags.metrics_listen, token);
  return place.ok() ? place : place.error().with_context("--metrics-listen");
}

}  // namespace hvd::cli
