// DynLib: a shared library that may be on a machine or not, and its functions. The only place that calls dlopen.
//
// Move-only. What was taken from it is good while it is open. Thread: any, one at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/result.h"

namespace hvd {

class DynLib {
 public:
  enum class Scope {
    kOwn,    // its names are seen by who asks here only
    kStays,  // the same, and it stays until the process ends, as what has threads and handlers of its own must
    kGlobal  // also by the libraries it loads itself, as Open MPI's components need; it stays as well
  };

  DynLib() = default;
  ~DynLib();
  DynLib(DynLib&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}
  DynLib& operator=(DynLib&& other) noexcept;
  DynLib(const DynLib&) = delete;
  DynLib& operator=(const DynLib&) = delete;

  // `name`: a path, or a name that the loader looks up. kNotFound with the loader's own words.
  static Result<DynLib> open(const std::string& name, Scope scope);
  // Only one that this process has loaded already: two copies of one library in a process do not know of each other.
  static Result<DynLib> find_loaded(const std::string& name, Scope scope);
  // The names of all that this process has loaded, as find_loaded() takes them, in the order of loading.
  static std::vector<std::string> loaded_names();

  // Null: it has no such name.
  [[nodiscard]] void* find(const char* symbol) const;
  // It has the name itself, and not only a library that it is linked with.
  [[nodiscard]] bool defines(const char* symbol) const;
  // A variable, where the library itself sees it: a program that is linked with the library may have the variable in
  // its own memory instead (a copy relocation).
  [[nodiscard]] void* find_variable(const char* symbol) const;
  // kNotFound names library and symbol.
  template <typename Function>
  Result<void> take(const char* symbol, Function*& function) const {
    void* found = find(symbol);
    if (found == nullptr) {
      return Error(Code::kNotFound, name_ + " has no " + symbol);
    }
    function = reinterpret_cast<Function*>(found);
    return {};
  }
  // As it was opened.
  [[nodiscard]] const std::string& name() const { return name_; }
  // The file that it came from; its name where the loader does not tell.
  [[nodiscard]] std::string path() const;

 private:
  DynLib(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace hvd
