// libFuzzer's entry: HVD_FUZZ_TARGET names the target. Started by scripts/fuzz.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/targets.h"

namespace {

const hvd::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* name = std::getenv("HVD_FUZZ_TARGET");
  for (const auto& target : hvd::fuzz::targets()) {
    if (name != nullptr && std::string_view(name) == target.name) {
      chosen = &target;
    }
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "HVD_FUZZ_TARGET names no target; see scripts/fuzz --list\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
