/* The little of MPI that the simulated sources name. Nothing of it is called. */
#ifndef SIM_MPI_H
#define SIM_MPI_H

#define MPI_SUCCESS 0
typedef void *MPI_Datatype;
typedef void *MPI_Op;
typedef long MPI_Aint;

#endif
