/* Mail between the processes of a job in which a framework is told of deaths (mail.c). */
#ifndef FTRMA_MAIL_H
#define FTRMA_MAIL_H

#include "internal.h"

/* Tell the framework of a death, if this process has opened its mail. */
void ftrma_mail_note(int proc);
/* End this process's wait for mail: an alarm was raised. */
void ftrma_mail_alarm(void);

#endif
