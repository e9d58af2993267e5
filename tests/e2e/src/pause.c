/* What holds a Pod's namespaces: it waits until it is told to end. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void end(int signal) {
    (void)signal;
    _exit(EXIT_SUCCESS);
}

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;) {
        pause();
    }
}
