#include "runtime/mpi/mpi_library.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "runtime/mpi/mpi_abi.h"
#include "runtime/mpi/mpi_file.h"

namespace hvd {
namespace {

constexpr int kSuccess = 0;
constexpr std::size_t kMaxErrorText = 1024;     // more than any MPI_MAX_ERROR_STRING
constexpr std::size_t kMaxVersionText = 16384;  // more than any MPI_MAX_LIBRARY_VERSION_STRING

template <typename Handle>
MpiHandle to_number(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return MpiHandle{reinterpret_cast<std::uintptr_t>(handle)};
  } else {
    return MpiHandle{static_cast<std::uintptr_t>(static_cast<std::uint32_t>(handle))};
  }
}

template <typename Handle>
Handle from_number(MpiHandle number) {
  const auto value = static_cast<std::uintptr_t>(number);
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(value);
  } else {
    return static_cast<Handle>(static_cast<std::uint32_t>(value));
  }
}

// X(name, symbol, (parameters)) stands for a function of MPI, whose result is an error code.
#define HVD_MPI_FUNCTIONS(X)                                                    \
  X(get_library_version, "MPI_Get_library_version", (char*, int*))              \
  X(error_string, "MPI_Error_string", (int, char*, int*))                       \
  X(initialized, "MPI_Initialized", (int*))                                     \
  X(finalized, "MPI_Finalized", (int*))                                         \
  X(init_thread, "MPI_Init_thread", (int*, char***, int, int*))                 \
  X(query_thread, "MPI_Query_thread", (int*))                                   \
  X(is_thread_main, "MPI_Is_thread_main", (int*))                               \
  X(finalize, "MPI_Finalize", ())                                               \
  X(comm_rank, "MPI_Comm_rank", (Handle, int*))                                 \
  X(comm_size, "MPI_Comm_size", (Handle, int*))                                 \
  X(comm_dup, "MPI_Comm_dup", (Handle, Handle*))                                \
  X(comm_group, "MPI_Comm_group", (Handle, Handle*))                            \
  X(group_incl, "MPI_Group_incl", (Handle, int, const int*, Handle*))           \
  X(group_free, "MPI_Group_free", (Handle*))                                    \
  X(comm_create_group, "MPI_Comm_create_group", (Handle, Handle, int, Handle*)) \
  X(comm_set_errhandler, "MPI_Comm_set_errhandler", (Handle, Handle))           \
  X(comm_free, "MPI_Comm_free", (Handle*))                                      \
  X(isend, "MPI_Isend", (const void*, int, Handle, int, int, Handle, Handle*))  \
  X(irecv, "MPI_Irecv", (void*, int, Handle, int, int, Handle, Handle*))        \
  X(test, "MPI_Test", (Handle*, int*, void*))                                   \
  X(cancel, "MPI_Cancel", (Handle*))

template <typename Abi>
class MpiLibraryOf final : public MpiLibrary {
 public:
  static Result<std::unique_ptr<MpiLibrary>> make(DynLib file) {
    std::unique_ptr<MpiLibraryOf> made(new MpiLibraryOf(std::move(file)));
    HVD_TRY(made->take_all());
    return std::unique_ptr<MpiLibrary>(std::move(made));
  }

  [[nodiscard]] std::string path() const override { return file_.path(); }
  [[nodiscard]] std::string version_text() const override {
    std::vector<char> text(kMaxVersionText, '\0');
    int length = 0;
    if (get_library_version_(text.data(), &length) != kSuccess) {
      return "an MPI that does not tell its version";
    }
    const std::string whole(text.data());
    return whole.substr(0, whole.find('\n'));
  }

  Result<bool> is_initialized() const override {
    int flag = 0;
    HVD_TRY(check(initialized_(&flag), "MPI_Initialized"));
    return flag != 0;
  }
  Result<bool> is_finalized() const override {
    int flag = 0;
    HVD_TRY(check(finalized_(&flag), "MPI_Finalized"));
    return flag != 0;
  }
  Result<MpiThreads> start(MpiThreads wanted) override {
    int given = 0;
    HVD_TRY(check(init_thread_(nullptr, nullptr, Abi::kThreadLevels.at(static_cast<std::size_t>(wanted)), &given),
                  "MPI_Init_thread"));
    return level_of(given);
  }
  Result<MpiThreads> threads() const override {
    int given = 0;
    HVD_TRY(check(query_thread_(&given), "MPI_Query_thread"));
    return level_of(given);
  }
  Result<bool> is_main_thread() const override {
    int flag = 0;
    HVD_TRY(check(is_thread_main_(&flag), "MPI_Is_thread_main"));
    return flag != 0;
  }
  Result<void> finish() override { return check(finalize_(), "MPI_Finalize"); }

  [[nodiscard]] MpiHandle world() const override { return to_number(world_); }
  Result<MpiHandle> from_fortran(int handle) const override {
    if constexpr (Abi::kFromFortran == nullptr) {
      return valid(handle);
    } else {
      return valid(from_fortran_(handle));
    }
  }
  Result<int> rank(MpiHandle comm) const override {
    int number = 0;
    HVD_TRY(check(comm_rank_(own(comm), &number), "MPI_Comm_rank"));
    return number;
  }
  Result<int> size(MpiHandle comm) const override {
    int number = 0;
    HVD_TRY(check(comm_size_(own(comm), &number), "MPI_Comm_size"));
    return number;
  }
  Result<MpiHandle> copy(MpiHandle comm) override {
    Handle made = no_comm_;
    HVD_TRY(check(comm_dup_(own(comm), &made), "MPI_Comm_dup"));
    return valid(made);
  }
  Result<MpiHandle> subset(MpiHandle comm, std::span<const int> ranks) override {
    static constexpr int kTag = 0x4856;  // distinguishes concurrent calls, of which there are none here
    Handle all{};
    Handle some{};
    Handle made = no_comm_;
    HVD_TRY(check(comm_group_(own(comm), &all), "MPI_Comm_group"));
    const int included = group_incl_(all, static_cast<int>(ranks.size()), ranks.data(), &some);
    static_cast<void>(group_free_(&all));
    HVD_TRY(check(included, "MPI_Group_incl"));
    const int created = comm_create_group_(own(comm), some, kTag, &made);
    static_cast<void>(group_free_(&some));
    HVD_TRY(check(created, "MPI_Comm_create_group"));
    return valid(made);
  }
  Result<void> return_errors(MpiHandle comm) override {
    return check(comm_set_errhandler_(own(comm), errors_return_), "MPI_Comm_set_errhandler");
  }
  Result<void> free(MpiHandle comm) override {
    Handle handle = own(comm);
    return check(comm_free_(&handle), "MPI_Comm_free");
  }

  Result<MpiHandle> start_send(const void* data, std::size_t bytes, int to, int tag, MpiHandle comm) override {
    HVD_CHECK(bytes <= kMaxMessageBytes);
    Handle request{};
    HVD_TRY(check(isend_(data, static_cast<int>(bytes), byte_, to, tag, own(comm), &request), "MPI_Isend"));
    return to_number(request);
  }
  Result<MpiHandle> start_receive(void* data, std::size_t bytes, int from, int tag, MpiHandle comm) override {
    HVD_CHECK(bytes <= kMaxMessageBytes);
    Handle request{};
    HVD_TRY(check(irecv_(data, static_cast<int>(bytes), byte_, from, tag, own(comm), &request), "MPI_Irecv"));
    return to_number(request);
  }
  Result<bool> test(MpiHandle& request) override {
    Handle handle = own(request);
    int is_done = 0;
    const int code = test_(&handle, &is_done, ignore_status());
    request = to_number(handle);  // also of one that has failed: MPI may have freed it
    HVD_TRY(check(code, "MPI_Test"));
    return is_done != 0;
  }
  Result<void> cancel(MpiHandle& request) override {
    Handle handle = own(request);
    return check(cancel_(&handle), "MPI_Cancel");
  }

 private:
  using Handle = typename Abi::Handle;

  explicit MpiLibraryOf(DynLib file) : file_(std::move(file)) {}

  Result<void> take_all() {
#define HVD_MPI_TAKE(name, symbol, parameters) HVD_TRY(file_.take(symbol, name##_));
    HVD_MPI_FUNCTIONS(HVD_MPI_TAKE)
#undef HVD_MPI_TAKE
    if constexpr (Abi::kFromFortran != nullptr) {
      HVD_TRY(file_.take(Abi::kFromFortran, from_fortran_));
    }
    HVD_TRY_ASSIGN(world_, Abi::constant(file_, Abi::kWorld));
    HVD_TRY_ASSIGN(no_comm_, Abi::constant(file_, Abi::kNoComm));
    HVD_TRY_ASSIGN(errors_return_, Abi::constant(file_, Abi::kErrorsReturn));
    HVD_TRY_ASSIGN(byte_, Abi::constant(file_, Abi::kByte));
    return {};
  }

  Result<void> check(int code, const char* function) const {
    if (code == kSuccess) {
      return {};
    }
    std::array<char, kMaxErrorText> text{};
    int length = 0;
    const bool is_told = error_string_(code, text.data(), &length) == kSuccess && text.front() != '\0';
    return Error(Code::kSystem, std::string(function) + ": " + (is_told ? text.data() : "error ") +
                                    (is_told ? "" : std::to_string(code)));
  }
  Result<MpiHandle> valid(Handle comm) const {
    if (comm == no_comm_) {
      return Error(Code::kInvalid, "MPI_COMM_NULL is no communicator of this rank");
    }
    return to_number(comm);
  }
  static MpiThreads level_of(int given) {
    const auto above = std::upper_bound(Abi::kThreadLevels.begin() + 1, Abi::kThreadLevels.end(), given);
    return static_cast<MpiThreads>(above - Abi::kThreadLevels.begin() - 1);
  }
  static Handle own(MpiHandle handle) { return from_number<Handle>(handle); }
  static void* ignore_status() { return reinterpret_cast<void*>(Abi::kIgnoreStatus); }

  // constant after construction
  DynLib file_;
  Handle world_{};
  Handle no_comm_{};
  Handle errors_return_{};
  Handle byte_{};
  Handle (*from_fortran_)(int) = nullptr;
#define HVD_MPI_MEMBER(name, symbol, parameters) int(*name##_) parameters = nullptr;
  HVD_MPI_FUNCTIONS(HVD_MPI_MEMBER)
#undef HVD_MPI_MEMBER
};

Result<std::unique_ptr<MpiLibrary>> library_of(MpiFile file) {
  switch (file.kind) {
    case MpiKind::kOpenMpi:
      return MpiLibraryOf<OpenMpiAbi>::make(std::move(file.library));
    case MpiKind::kMpich:
      return MpiLibraryOf<MpichAbi>::make(std::move(file.library));
    case MpiKind::kStandard:
      break;
  }
  return MpiLibraryOf<StandardAbi>::make(std::move(file.library));
}

}  // namespace

const char* name_of(MpiThreads level) {
  switch (level) {
    case MpiThreads::kSingle:
      return "MPI_THREAD_SINGLE";
    case MpiThreads::kFunneled:
      return "MPI_THREAD_FUNNELED";
    case MpiThreads::kSerialized:
      return "MPI_THREAD_SERIALIZED";
    case MpiThreads::kMultiple:
      return "MPI_THREAD_MULTIPLE";
  }
  return "an unknown level of threads";
}

Result<std::unique_ptr<MpiLibrary>> MpiLibrary::load(const std::string& path, bool prefers_mpich, DynLib::Scope scope) {
  auto file = find_mpi_file(path, prefers_mpich, scope);
  if (!file.ok()) {
    return file.error().with_context("no MPI library can be loaded");
  }
  return library_of(std::move(file).value());
}

Result<std::unique_ptr<MpiLibrary>> MpiLibrary::find_started() {
  auto file = find_started_mpi_file(DynLib::Scope::kOwn);
  if (!file) {
    return std::unique_ptr<MpiLibrary>();
  }
  return library_of(std::move(*file));
}

}  // namespace hvd
