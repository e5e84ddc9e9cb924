#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stages.h"

enum { REQUEST = 256, ANSWER = 4096 };

struct request {
    union {
        struct nlmsghdr head;
        uint8_t bytes[REQUEST];
    };
};

struct network_address {
    int family;
    uint8_t bytes[16];
    size_t length;
    unsigned prefix;
};

/* --- netlink -------------------------------------------------------------------------------------------------- */

static struct request request_for(uint16_t type, uint16_t flags, const void *body, size_t length) {
    struct request request = {.bytes = {0}};
    request.head.nlmsg_type = type;
    request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    request.head.nlmsg_len = (uint32_t)NLMSG_LENGTH(length);
    memcpy(NLMSG_DATA(&request.head), body, length);
    return request;
}

static void put_attribute(struct request *request, uint16_t type, const void *value, size_t length) {
    struct rtattr *attribute = (struct rtattr *)(void *)(request->bytes + NLMSG_ALIGN(request->head.nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = (uint16_t)RTA_LENGTH(length);
    memcpy(RTA_DATA(attribute), value, length);
    request->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(request->head.nlmsg_len) + RTA_ALIGN(attribute->rta_len));
}

/* 0, or -1 with errno as the kernel answers. */
static int ask(struct request *request) {
    union {
        struct nlmsghdr head;
        uint8_t bytes[ANSWER];
    } answer;
    struct nlmsgerr *error = NLMSG_DATA(&answer.head);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return -1;
    stage_pause();
    ssize_t got = send(fd, request, request->head.nlmsg_len, 0);
    if (got > 0) got = recv(fd, &answer, sizeof answer, 0);
    stage_go_on();
    close(fd);
    if (got < (ssize_t)NLMSG_LENGTH(sizeof *error)) return -1;
    errno = answer.head.nlmsg_type == NLMSG_ERROR ? -error->error : EPROTO;
    return errno ? -1 : 0;
}

/* --- what is asked -------------------------------------------------------------------------------------------- */

static bool parse_address(struct network_address *address, const char *text) {
    char name[INET6_ADDRSTRLEN + 1];
    size_t length = strcspn(text, "/");
    if (length >= sizeof name) return false;
    memcpy(name, text, length);
    name[length] = 0;
    address->family = strchr(name, ':') ? AF_INET6 : AF_INET;
    address->length = address->family == AF_INET6 ? 16 : 4;
    address->prefix = text[length] ? (unsigned)strtoul(text + length + 1, NULL, 10) : (unsigned)address->length * 8;
    return inet_pton(address->family, name, address->bytes) == 1 && address->prefix <= address->length * 8;
}

static int bring_up(unsigned index, uint32_t mtu) {
    struct ifinfomsg body = {.ifi_family = AF_UNSPEC, .ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    struct request request = request_for(RTM_NEWLINK, 0, &body, sizeof body);
    if (mtu) put_attribute(&request, IFLA_MTU, &mtu, sizeof mtu);
    return ask(&request);
}

static int add_address(unsigned index, const struct network_address *address) {
    struct ifaddrmsg body = {.ifa_family = (uint8_t)address->family, .ifa_prefixlen = (uint8_t)address->prefix, .ifa_index = index};
    if (address->family == AF_INET6) body.ifa_flags = IFA_F_NODAD; /* the host has given it to nobody else */
    struct request request = request_for(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body, sizeof body);
    put_attribute(&request, IFA_LOCAL, address->bytes, address->length);
    put_attribute(&request, IFA_ADDRESS, address->bytes, address->length);
    return ask(&request);
}

static int add_default_route(unsigned index, const struct network_address *gateway) {
    struct rtmsg body = {
        .rtm_family = (uint8_t)gateway->family,
        .rtm_table = RT_TABLE_MAIN,
        .rtm_protocol = RTPROT_STATIC,
        .rtm_scope = RT_SCOPE_UNIVERSE,
        .rtm_type = RTN_UNICAST,
        .rtm_flags = RTNH_F_ONLINK, /* the gateway need not be in a network of the link: 169.254.1.1 beside a /32 */
    };
    struct request request = request_for(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body, sizeof body);
    put_attribute(&request, RTA_GATEWAY, gateway->bytes, gateway->length);
    put_attribute(&request, RTA_OIF, &index, sizeof index);
    return ask(&request);
}

/* --- the link ------------------------------------------------------------------------------------------------- */

/* A kernel without IPv6 has no such setting, and no need of it. */
static void set_ipv6(const char *link, const char *setting, const char *value) {
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%.15s/%s", link, setting);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    (void)!write(fd, value, strlen(value));
    if (fd >= 0) close(fd);
}

static bool has_hardware_address(const struct link *link) {
    struct ifreq about = {.ifr_flags = 0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(about.ifr_name, sizeof about.ifr_name, "%s", link->name);
    bool has = ioctl(fd, SIOCGIFHWADDR, &about) == 0 && memcmp(about.ifr_hwaddr.sa_data, link->hardware, HARDWARE_ADDRESS) == 0;
    if (fd >= 0) close(fd);
    return has;
}

static int each(char **texts, unsigned index, int (*add)(unsigned, const struct network_address *), const char *what,
                struct failure *why) {
    for (; *texts; texts++) {
        struct network_address address;
        if (!parse_address(&address, *texts)) return fail(why, EINVAL, what, *texts);
        if (add(index, &address) < 0) return fail(why, errno, what, *texts);
    }
    return 0;
}

int network_begin(const struct link *link, struct failure *why) {
    if (bring_up(if_nametoindex("lo"), 0) < 0) return fail(why, errno, "network", "lo");
    if (!link->name) return 0;
    unsigned index = if_nametoindex(link->name);
    if (index == 0) return fail(why, ENODEV, "network", link->name);
    if (!has_hardware_address(link)) return fail(why, EADDRNOTAVAIL, "hardware address of", link->name);
    set_ipv6(link->name, "accept_ra", "0");
    set_ipv6(link->name, "accept_redirects", "0");
    set_ipv6(link->name, "dad_transmits", "0");
    if (bring_up(index, link->mtu) < 0) return fail(why, errno, "network", link->name);
    if (each(link->addresses, index, add_address, "address", why) < 0) return -1;
    return each(link->gateways, index, add_default_route, "route by", why);
}
