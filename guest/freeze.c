#include "freeze.h"

#include <errno.h>
#include <linux/fs.h>
#include <stddef.h>
#include <sys/ioctl.h>

#include "errand.h"
#include "loop.h"
#include "mounts.h"
#include "peer.h"

static int freeze(const struct mount *mount, struct failure *why) {
    return ioctl(mount->root, FIFREEZE, 0) < 0 ? fail(why, errno, "freeze", mount->target) : 0;
}

static int thaw(struct mount *mount, struct failure *why) {
    mount->holder = NULL;
    return ioctl(mount->root, FITHAW, 0) < 0 ? fail(why, errno, "thaw", mount->target) : 0;
}

/* It may have taken longer than it was to last, or than whoever asked was there; or was called off meanwhile. */
static void frozen(struct peer *peer, uint32_t channel, struct mount *mount, const struct failure *why) {
    struct failure late;
    if (!why && (!peer || mount->holder != peer || now_ms() >= mount->thaw_at)) {
        (void)thaw(mount, &late);
        fail(&late, ETIMEDOUT, "freeze", mount->target);
        why = &late;
    }
    if (why && mount->holder == peer) mount->holder = NULL;
    peer_send_done(peer, channel, why);
}

void freeze_begin(struct peer *peer, uint32_t channel, struct mount *mount, uint32_t timeout_ms) {
    struct failure why;
    if (mount->holder) {
        fail(&why, EBUSY, "freeze", mount->target);
        peer_send_done(peer, channel, &why);
        return;
    }
    mount->thaw_at = now_ms() + timeout_ms;
    mount->holder = peer;
    if (errand_send(peer, channel, mount, freeze, frozen)) return;
    mount->holder = NULL;
    fail(&why, EAGAIN, "freeze", mount->target);
    peer_send_done(peer, channel, &why);
}

void freeze_end(struct peer *peer, uint32_t channel, struct mount *mount) {
    struct failure why;
    peer_send_done(peer, channel, thaw(mount, &why) < 0 ? &why : NULL);
}

void freezes_watch(void) {
    struct failure why;
    struct mount *mount;
    for (size_t i = 0; (mount = mount_at(i)); i++) {
        if (!mount->holder) continue;
        if (now_ms() < mount->thaw_at)
            loop_wake_at(mount->thaw_at);
        else
            (void)thaw(mount, &why);
    }
}

static void end_all_of(const struct peer *peer, bool whoever) {
    struct failure why;
    struct mount *mount;
    for (size_t i = 0; (mount = mount_at(i)); i++)
        if (mount->holder && (whoever || mount->holder == peer)) (void)thaw(mount, &why);
}

void freezes_lost(const struct peer *peer) { end_all_of(peer, false); }
void freezes_end(void) { end_all_of(NULL, true); }
