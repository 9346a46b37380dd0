"""Documents a model can ask for by key: folders of Agent Skills, or objects in a bucket."""

from leafward.sessions.skills.bucket import BucketSkillProvider
from leafward.sessions.skills.directory import DirectorySkillProvider

__all__ = ["BucketSkillProvider", "DirectorySkillProvider"]
