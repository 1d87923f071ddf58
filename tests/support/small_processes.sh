# Setup for tests with processes, which train $small_recipe: mpirun may start more processes than there are cores, also
# as root. The script that sources this file must set `here`, the folder of tests/tools.
# shellcheck shell=bash disable=SC2034,SC2154

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none                   # Open MPI 4
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none  # Open MPI 5
export OMPI_MCA_pml=ob1  # the default here; without a search for alternatives mpirun starts in half the time
export ONEDNN_MAX_CPU_ISA=AVX2  # AVX-512 kernels are as fast here, but take twice as long to start with
small_recipe=$here/../support/small_images.toml
