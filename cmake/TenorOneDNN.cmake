# DNNL::dnnl from the library and its header. oneDNN's own package file, as Debian builds it, stops the configuration where
# the OpenCL headers are missing, which Tenor does not use.
if(NOT TARGET DNNL::dnnl)
  find_library(TENOR_DNNL_LIBRARY dnnl)
  find_path(TENOR_DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
  mark_as_advanced(TENOR_DNNL_LIBRARY TENOR_DNNL_INCLUDE_DIR)
  if(TENOR_DNNL_LIBRARY AND TENOR_DNNL_INCLUDE_DIR)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${TENOR_DNNL_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${TENOR_DNNL_INCLUDE_DIR})
  endif()
endif()
