# find_package(tenor) and pkg-config for those who install the library.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS tenor EXPORT tenorTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tenor DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tenorTargets NAMESPACE tenor:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tenor)
configure_package_config_file(cmake/tenorConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/tenorConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tenor)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/tenorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tenorConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/tenorConfigVersion.cmake
              cmake/TenorOneDNN.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tenor)
file(RELATIVE_PATH TENOR_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(TENOR_PC_PRIVATE "-lhwy -lgomp -lstdc++ -lm")
if(TENOR_HAS_ONEDNN)
  string(PREPEND TENOR_PC_PRIVATE "-ldnnl ")
endif()
if(TENOR_HAS_CUDA)
  string(APPEND TENOR_PC_PRIVATE " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt -lpthread")
endif()
# Whoever links the archive links what it is built on; of a shared library that is --static's matter.
get_target_property(TENOR_LIBRARY_TYPE tenor TYPE)
if(TENOR_LIBRARY_TYPE STREQUAL "STATIC_LIBRARY")
  set(TENOR_PC_LIBS " ${TENOR_PC_PRIVATE}")
  set(TENOR_PC_PRIVATE "")
endif()
configure_file(cmake/tenor.pc.in ${CMAKE_CURRENT_BINARY_DIR}/tenor.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tenor.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
