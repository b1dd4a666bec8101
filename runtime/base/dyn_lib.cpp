#include "runtime/base/dyn_lib.h"

#include <dlfcn.h>
#include <link.h>

namespace hvd {
namespace {

int flags_of(DynLib::Scope scope) {
  switch (scope) {
    case DynLib::Scope::kOwn:
      return RTLD_LAZY | RTLD_LOCAL;
    case DynLib::Scope::kStays:
      return RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE;
    case DynLib::Scope::kGlobal:
      return RTLD_LAZY | RTLD_GLOBAL | RTLD_NODELETE;
  }
  return RTLD_LAZY;
}

// Clears it too, so that it is that of the call before.
std::string loader_error(const std::string& name) {
  const char* text = ::dlerror();
  return text != nullptr ? text : name + " could not be loaded";
}

}  // namespace

DynLib::~DynLib() {
  if (handle_ != nullptr) {
    ::dlclose(handle_);
  }
}

DynLib& DynLib::operator=(DynLib&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  return *this;
}

Result<DynLib> DynLib::open(const std::string& name, Scope scope) {
  void* handle = ::dlopen(name.c_str(), flags_of(scope));
  if (handle == nullptr) {
    return Error(Code::kNotFound, loader_error(name));
  }
  return DynLib(handle, name);
}

Result<DynLib> DynLib::find_loaded(const std::string& name, Scope scope) {
  void* handle = ::dlopen(name.c_str(), flags_of(scope) | RTLD_NOLOAD);
  if (handle == nullptr) {
    static_cast<void>(::dlerror());
    return Error(Code::kNotFound, name + " is not loaded in this process");
  }
  return DynLib(handle, name);
}

void* DynLib::find(const char* symbol) const {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_, symbol);
}

void* DynLib::find_variable(const char* symbol) const {
  void* own = find(symbol);
  void* seen = own == nullptr ? nullptr : ::dlsym(RTLD_DEFAULT, symbol);
  return seen != nullptr ? seen : own;
}

std::string DynLib::path() const {
  link_map* map = nullptr;
  const bool is_told = handle_ != nullptr && ::dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
  return is_told && map->l_name != nullptr && *map->l_name != '\0' ? map->l_name : name_;
}

}  // namespace hvd
