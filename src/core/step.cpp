#include "src/core/step.h"

namespace tenor::core {

thread_local Tracer* current_tracer = nullptr;

TracerGuard::TracerGuard(Tracer* tracer) : previous_(current_tracer) { current_tracer = tracer; }
TracerGuard::~TracerGuard() { current_tracer = previous_; }

}  // namespace tenor::core
