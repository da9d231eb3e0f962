#include "src/core/registry.h"

#include <map>
#include <mutex>

namespace tenor::core {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, OpInfo> by_name;
};
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

}  // namespace

void register_operator(const OpInfo& info) {
  std::lock_guard lock(registry().mutex);
  registry().by_name.insert_or_assign(info.name, info);
}

OpRegistration::OpRegistration(std::initializer_list<OpInfo> infos) {
  for (const OpInfo& info : infos) register_operator(info);
}

std::vector<OpInfo> operators() {
  std::lock_guard lock(registry().mutex);
  std::vector<OpInfo> all;
  for (const auto& [name, info] : registry().by_name) all.push_back(info);
  return all;
}

}  // namespace tenor::core
