// Counts of calls, and the failures that tests ask for. Thread: any (one mutex of its own).
#pragma once

#include <cstdint>
#include <string>

namespace hvd::fake {

// Counts a call; the CUresult that it is to fail with, or 0.
int count_call(const char* what);
std::int64_t calls_of(const std::string& what);
void add_live(const char* what, int change);
// `code` 0: what suits the function.
void fail_at(const std::string& what, int calls, int code);
// FAKE_CUDA_FAIL's text; false when it is none.
bool read_failures(const std::string& text);

}  // namespace hvd::fake
