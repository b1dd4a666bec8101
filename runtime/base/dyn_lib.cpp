#include "runtime/base/dyn_lib.h"

#include <string_view>

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

// Returns the loader's error text, and clears it, so that the next text belongs to the next call.
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

std::vector<std::string> DynLib::loaded_names() {
  std::vector<std::string> names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t /*size*/, void* list) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {  // the program itself has no name
          static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &names);
  return names;
}

void* DynLib::find(const char* symbol) const {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_, symbol);
}

bool DynLib::defines(const char* symbol) const {
  const void* found = find(symbol);
  Dl_info where{};
  return found != nullptr && ::dladdr(found, &where) != 0 && where.dli_fname != nullptr &&
         path() == std::string_view(where.dli_fname);
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
