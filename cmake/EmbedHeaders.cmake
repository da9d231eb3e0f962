# cmake -D OUTPUT=... -D ROOT=... -D "HEADERS=a;b" -P EmbedHeaders.cmake: the headers' text as a C++ source that defines
# tenor::cuda::prelude(). Every standard header that they include is src/cuda/fusion/prelude/standard.cuh.
set(body "")
set(rows "")
set(n 0)
foreach(header IN LISTS HEADERS)
  file(READ ${ROOT}/${header} text)
  string(REGEX REPLACE "^include/" "" name "${header}")
  if(name STREQUAL "src/cuda/fusion/prelude/dims.cuh")
    set(name "tenor/dims.h")
  elseif(name STREQUAL "src/cuda/fusion/prelude/runtime.cuh")
    set(name "src/cuda/runtime.h")
  endif()
  string(APPEND body "constexpr char kText${n}[] = R\"EMBEDDED(${text})EMBEDDED\";\n")
  string(APPEND rows "    {\"${name}\", kText${n}},\n")
  math(EXPR n "${n} + 1")
endforeach()
foreach(name bit cmath concepts cstddef cstdint cstring limits string_view type_traits)
  string(APPEND rows "    {\"${name}\", \"#include \\\"src/cuda/fusion/prelude/standard.cuh\\\"\\n\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"src/cuda/fusion/executor.h\"\n\nnamespace tenor::cuda {\nnamespace {\n${body}\
constexpr EmbeddedHeader kHeaders[] = {\n${rows}};\n}  // namespace\n\
std::span<const EmbeddedHeader> prelude() { return kHeaders; }\n}  // namespace tenor::cuda\n")
