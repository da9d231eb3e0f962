# Compiler, flags and third-party libraries.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(TENOR_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  find_program(TENOR_CCACHE ccache)
  if(TENOR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${TENOR_CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${TENOR_CCACHE})
  endif()
endif()

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(hwy REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)

set(TENOR_HAS_ONEDNN OFF)
if(NOT TENOR_ONEDNN STREQUAL "OFF")
  include(${CMAKE_CURRENT_LIST_DIR}/TenorOneDNN.cmake)
  if(TARGET DNNL::dnnl)
    set(TENOR_HAS_ONEDNN ON)
  elseif(TENOR_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "TENOR_ONEDNN=ON, but oneDNN was not found (Debian: libdnnl-dev)")
  endif()
endif()

option(TENOR_NATIVE "Build for this machine alone: CPU kernels of its instruction set, CUDA kernels of sm_90a: a third of the build time" OFF)

# CUDA sources are picked up by their suffix, .cu, in src/cuda and in each family's folder. Code of sm_90a serves Hopper; PTX of
# compute_80 is compiled by the driver for every other device since Ampere, without what only Hopper has.
set(TENOR_HAS_CUDA OFF)
if(NOT TENOR_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(TENOR_NATIVE)
      set(TENOR_CUDA_ARCHITECTURES_DEFAULT 90a-real)
    else()
      set(TENOR_CUDA_ARCHITECTURES_DEFAULT 90a-real 80-virtual)
    endif()
    set(TENOR_CUDA_ARCHITECTURES "${TENOR_CUDA_ARCHITECTURES_DEFAULT}" CACHE STRING
        "What the CUDA kernels are compiled for, in CMake's words; Hopper's own kernels need 90a")
    set(CMAKE_CUDA_ARCHITECTURES ${TENOR_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know what nvcc 13 can do
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.5)
      find_package(CUDAToolkit REQUIRED)
      set(TENOR_HAS_CUDA ON)
    endif()
  endif()
  if(TENOR_CUDA STREQUAL "ON" AND NOT TENOR_HAS_CUDA)
    message(FATAL_ERROR "TENOR_CUDA=ON, but nvcc 12.5 or newer was not found")
  endif()
endif()

# Flags of everything Tenor compiles. Floating-point contraction is off: each step rounds on its own, and kernels that
# own their whole formula ask for FMA by name.
function(tenor_compile_flags target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -ffp-contract=off -fno-math-errno>)
  # constexpr functions of the standard library (bit_cast, numeric_limits) serve device code too.
  target_compile_options(${target} PRIVATE
                         $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
                         $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda> $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.9)  # kernels that differ in a formula share most of their code
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>)
  endif()
  if(TENOR_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
  foreach(kind IN LISTS TENOR_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${kind} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${kind})
  endforeach()
  if(TENOR_NATIVE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
    target_compile_definitions(${target} PRIVATE HWY_COMPILE_ONLY_STATIC)
  else()
    # The baseline, AVX2 and AVX-512: the instruction sets between them would only lengthen the build.
    target_compile_definitions(${target} PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")
  endif()
endfunction()

# The headers that fused kernels, which are compiled at run time, include: those of the eager kernels' own formulas.
function(tenor_embed_headers target)
  set(headers include/tenor/dtype.h src/core/numeric.h src/cuda/content_error.cuh src/cuda/convert.cuh src/cuda/gelu.cuh src/cuda/lane_tree.cuh
              src/cuda/lasting.cuh src/cuda/layout.h src/cuda/vector.cuh src/ops/elementwise/elementwise_op.h)
  foreach(name columns dims gather packs rows runtime standard)
    list(APPEND headers src/cuda/fusion/prelude/${name}.cuh)
  endforeach()
  foreach(name activation arithmetic compare division formula logic math)
    list(APPEND headers src/ops/elementwise/formulas/${name}.cuh)
  endforeach()
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedHeaders.cmake)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/generated/prelude.cpp)
  list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${output} DEPENDS ${files} ${script} VERBATIM
                     COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D ROOT=${PROJECT_SOURCE_DIR} -D "HEADERS=${headers}" -P ${script})
  target_sources(${target} PRIVATE ${output})
endfunction()

function(tenor_configure_library target)
  tenor_compile_flags(${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
                                       PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  # {fmt} is compiled into one file and never linked; only its headers are needed, as are those of nlohmann/json.
  target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>
                                               $<TARGET_PROPERTY:nlohmann_json::nlohmann_json,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX hwy::hwy)
  if(TENOR_HAS_CUDA)
    # The runtime is linked statically and the driver found at run time: the library loads where there is neither.
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu ${PROJECT_SOURCE_DIR}/src/cuda/*.cpp)
    list(FILTER cuda_sources EXCLUDE REGEX "_(test|bench)\\.(cu|cpp)$")
    target_sources(${target} PRIVATE ${cuda_sources})
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
    target_compile_definitions(${target} PRIVATE TENOR_HAS_CUDA=1)
    tenor_embed_headers(${target})
  endif()
  if(TENOR_HAS_ONEDNN)
    target_link_libraries(${target} PRIVATE DNNL::dnnl)
    target_compile_definitions(${target} PRIVATE TENOR_HAS_ONEDNN=1)
  endif()
endfunction()
