// Which sanitizer a test is compiled with. Clang and GCC say it in different ways.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HVD_HAS_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define HVD_HAS_TSAN 1
#endif
#else
#if defined(__SANITIZE_ADDRESS__)
#define HVD_HAS_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define HVD_HAS_TSAN 1
#endif
#endif
#if !defined(HVD_HAS_ASAN)
#define HVD_HAS_ASAN 0
#endif
#if !defined(HVD_HAS_TSAN)
#define HVD_HAS_TSAN 0
#endif

namespace hvd::test {

inline constexpr bool kHasAddressSanitizer = HVD_HAS_ASAN == 1;
inline constexpr bool kHasThreadSanitizer = HVD_HAS_TSAN == 1;

}  // namespace hvd::test
