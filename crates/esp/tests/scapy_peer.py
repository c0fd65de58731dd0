"""The other end of a test: ESP by Scapy, one request a line.

    seal MATERIAL SPI SEQUENCE MODE PACKET    seals an inner IPv4 packet; answers with what goes into a datagram
    open MATERIAL SPI SEQUENCE MODE DATAGRAM  the reverse
    ready                                     answers with Scapy's version

Everything but SPI, SEQUENCE (64 bits) and MODE (transport or tunnel) is in hexadecimal digits. What is not authentic is
answered with a word.
"""
import sys

from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.layers.ipsec import CRYPT_ALGOS, ESP, IPSecIntegrityError, SecurityAssociation
from scapy.packet import raw

OUTER = {"src": "192.0.2.1", "dst": "192.0.2.2"}
PORT = 4500


def association(material, spi, sequence, mode):
    return SecurityAssociation(
        ESP,
        spi=int(spi),
        seq_num=int(sequence) & 0xFFFFFFFF,
        crypt_algo="AES-GCM",
        crypt_key=bytes.fromhex(material),
        tunnel_header=IP(**OUTER) if mode == "tunnel" else None,
        nat_t_header=UDP(sport=PORT, dport=PORT),
        esn_en=True,
        esn=int(sequence) >> 32,
    )


def seal(material, spi, sequence, mode, packet):
    sealed = association(material, spi, sequence, mode).encrypt(IP(bytes.fromhex(packet)))
    return raw(sealed[UDP].payload).hex()


def open_(material, spi, sequence, mode, datagram):
    inner = {"src": "10.0.0.1", "dst": "10.0.0.2"} if mode == "transport" else OUTER
    outer = IP(ttl=64, flags="DF", id=0, **inner) / UDP(sport=PORT, dport=PORT) / bytes.fromhex(datagram)
    try:
        return raw(association(material, spi, sequence, mode).decrypt(IP(raw(outer)))).hex()
    except IPSecIntegrityError:
        return "forged"


def ready():
    if "AES-GCM" not in CRYPT_ALGOS:
        return "no cipher: python3-cryptography is missing"
    return "scapy " + conf.version


for line in sys.stdin:
    verb, *words = line.split()
    print({"seal": seal, "open": open_, "ready": ready}[verb](*words), flush=True)
