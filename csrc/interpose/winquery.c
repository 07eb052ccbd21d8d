/* Queries of a window by the program. */
#include "errors.h"
#include "window.h"

int MPI_Win_get_group(MPI_Win win, MPI_Group *group)
{
    struct window *w = ftrma_window(win);
    return w ? PMPI_Group_union(w->group, MPI_GROUP_EMPTY, group) : PMPI_Win_get_group(win, group);
}

int MPI_Win_get_attr(MPI_Win win, int keyval, void *value, int *flag)
{
    static int flavors[] = {MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_SHARED};
    static int model = MPI_WIN_UNIFIED;
    struct window *w = ftrma_window(win);
    if (w && keyval == MPI_WIN_CREATE_FLAVOR && w->allocated) {
        *(int **)value = &flavors[w->shared];
        *flag = 1;
        return MPI_SUCCESS;
    }
    if (w && keyval == MPI_WIN_MODEL) {
        *(int **)value = &model;
        *flag = 1;
        return MPI_SUCCESS;
    }
    return PMPI_Win_get_attr(win, keyval, value, flag);
}

int MPI_Win_shared_query(MPI_Win win, int rank, MPI_Aint *size, int *disp_unit, void *baseptr)
{
    struct window *w = ftrma_window(win);
    if (!w)
        return PMPI_Win_shared_query(win, rank, size, disp_unit, baseptr);
    if (!w->shared)
        return ftrma_window_fail(w, MPI_ERR_RMA_FLAVOR, "Shared_query on a protected window: its "
                                 "parts are reached by Put and Get; only windows from "
                                 "Allocate_shared can be queried");
    for (int i = 0; rank == MPI_PROC_NULL && i < w->n; i++) /* the first part that has memory */
        rank = w->members[i].size_bytes ? i : rank;
    if (rank == MPI_PROC_NULL) {
        *size = *disp_unit = 0;
        *(void **)baseptr = NULL;
        return MPI_SUCCESS;
    }
    if (rank < 0 || rank >= w->n)
        return ftrma_window_fail(w, MPI_ERR_RANK, "Shared_query: rank %d is not in this window's "
                                 "group of %d", rank, w->n);
    *size = (MPI_Aint)w->members[rank].size_bytes;
    *disp_unit = (int)w->members[rank].disp_unit;
    *(void **)baseptr = part(w, rank);
    return MPI_SUCCESS;
}
