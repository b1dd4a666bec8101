// DynLib is a shared library that may or may not be on a machine, loaded at run time. No other code calls dlopen.
//
// Move-only. Functions taken from it are valid while it is open. Thread: any, one at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/result.h"

namespace hvd {

class DynLib {
 public:
  enum class Scope {
    kOwn,  // only the caller sees its symbols
    // the same, and it stays loaded until the process ends, as a library with threads or handlers of its own must
    kStays,
    kGlobal  // libraries that it loads see them too, as Open MPI's components need; it stays loaded as well
  };

  DynLib() = default;
  ~DynLib();
  DynLib(DynLib&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}
  DynLib& operator=(DynLib&& other) noexcept;
  DynLib(const DynLib&) = delete;
  DynLib& operator=(const DynLib&) = delete;

  // `name` is a path, or a name that the loader looks up. kNotFound contains the loader's own error text.
  static Result<DynLib> open(const std::string& name, Scope scope);
  // Finds a library only if this process has loaded it already, since two copies of one library in a process do not
  // know of each other.
  static Result<DynLib> find_loaded(const std::string& name, Scope scope);
  // The names of all libraries that this process has loaded, as find_loaded() takes them, in the order of loading.
  static std::vector<std::string> loaded_names();

  // Returns null if there is no such symbol.
  [[nodiscard]] void* find(const char* symbol) const;
  // Whether the library itself defines the symbol, and not only a library that it is linked with.
  [[nodiscard]] bool defines(const char* symbol) const;
  // Returns a variable's address as the library itself sees it. A program that is linked with the library may have the
  // variable in its own memory instead (a copy relocation).
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
  // The name with which it was opened.
  [[nodiscard]] const std::string& name() const { return name_; }
  // The file that it came from; its name if the loader does not report the file.
  [[nodiscard]] std::string path() const;

 private:
  DynLib(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace hvd
